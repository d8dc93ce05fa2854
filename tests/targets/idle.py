"""Waits for its standard input to end, in a function of a known name, with a second thread asleep."""

import sys
import threading


def wait_for_input():
    sys.stdin.read()


def sleep(event):
    event.wait()


def main():
    event = threading.Event()
    thread = threading.Thread(target=sleep, args=(event,), name="sleeper")
    thread.start()
    print("ready", flush=True)
    wait_for_input()
    event.set()
    thread.join()


main()
