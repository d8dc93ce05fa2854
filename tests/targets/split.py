"""A known split of CPU time, by equal units of work in a random order; with --timer also a 1.5 ms timer whose handler
works. Prints "ready"; at SIGTERM prints the CPU time of each function, measured by itself, as JSON."""

import json
import random
import signal
import sys
import time

UNITS = (("half", 50), ("third", 30), ("seventh", 15), ("rest", 5))
spent = {name: 0 for name, _ in UNITS}
spent["on_timer"] = 0
going = True
in_timer = False


def work(units):
    value = 1
    for step in range(units):
        value = (value * 31 + step) & 0xFFFFF
        value = value ^ 0x55
        value = (value * 7 + step) & 0xFFFFF
        value = value + 3
        value = (value * 17 + step) & 0xFFFFF
        value = value ^ 0xAA
        value = (value * 3 + step) & 0xFFFFF
    return value


def half(units):
    return work(units)


def third(units):
    return work(units)


def seventh(units):
    return work(units)


def rest(units):
    return work(units)


def on_timer(number, frame):
    global in_timer
    if in_timer:  # on a slow machine the next signal comes before this one is served
        return
    in_timer = True
    start = time.thread_time_ns()
    work(120)
    spent["on_timer"] += time.thread_time_ns() - start
    in_timer = False


def stop(number, frame):
    global going
    going = False


def main():
    deck = [globals()[name] for name, count in UNITS for _ in range(count)]
    rng = random.Random(5)
    signal.signal(signal.SIGTERM, stop)
    if "--timer" in sys.argv:
        signal.signal(signal.SIGALRM, on_timer)
        signal.setitimer(signal.ITIMER_REAL, 0.0015, 0.0015)
    print("ready", flush=True)
    begin = time.thread_time_ns()
    while going:
        rng.shuffle(deck)
        for function in deck:
            start = time.thread_time_ns()
            function(4000)
            spent[function.__name__] += time.thread_time_ns() - start
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(json.dumps({"total": time.thread_time_ns() - begin, "spent": spent}), flush=True)


main()
