"""Does one thing after another, waits in between, and says when each began and ended, in Unix nanoseconds."""

import sys
import time

SECONDS = 0.7


def morning(until):
    while time.time_ns() < until:
        pass


def noon(until):
    time.sleep((until - time.time_ns()) / 1e9)


def evening(until):
    while time.time_ns() < until:
        pass


def main():
    print("ready", flush=True)
    sys.stdin.readline()
    for phase in (morning, noon, evening):
        began = time.time_ns()
        phase(began + int(SECONDS * 1e9))
        print(phase.__name__, began, time.time_ns(), flush=True)


main()
