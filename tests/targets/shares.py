"""Three quarters of the CPU time in heavy(), one quarter in light(), by equal units of work; a thread that sleeps.
With --children the same in a child, under the names of the child. Busy until its input ends."""

import os
import signal
import sys
import threading
import time


def heavy(units):
    value = 1
    for step in range(units):
        value = (value * 31 + step) & 0xFFFF
    return value


def light(units):
    value = 1
    for step in range(units):
        value = (value * 31 + step) & 0xFFFF
    return value


def in_child(units):
    value = 1
    for step in range(units):
        value = (value * 31 + step) & 0xFFFF
    return value


def sleeper():
    time.sleep(1000)


def main():
    threading.Thread(target=sleeper, name="sleeper", daemon=True).start()
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), name="reader", daemon=True).start()
    print("ready", flush=True)
    while not ended.is_set():
        heavy(3000)
        light(1000)


child = 0
if "--children" in sys.argv:
    child = os.fork()
    while not child:
        in_child(3000)
main()
if child:
    os.kill(child, signal.SIGKILL)
