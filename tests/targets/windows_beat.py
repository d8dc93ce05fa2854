"""Two threads that work, and one that answers each line of its input with a line once both have worked on."""

import sys
import threading
import time

turns = [0, 0]


def work(number):
    while True:
        value = 1
        for step in range(2000):
            value = (value * 31 + step) & 0xFFFF
        turns[number] += 1


def answer():
    for _ in sys.stdin:
        before = list(turns)
        while any(now == then for now, then in zip(turns, before, strict=True)):
            time.sleep(0.001)
        print("both worked on", flush=True)


for number in range(2):
    threading.Thread(target=work, args=(number,), daemon=True).start()
print("ready", flush=True)
answer()
