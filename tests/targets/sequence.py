"""A fixed computation with many system calls, threads and timers; prints a line for each step, the same in every run.
A step begins when a line comes in."""

import hashlib
import os
import select
import signal
import socket
import sys
import threading
import time


def child_sum(number, results):
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"%d" % number)
        select.select([right], [], [], 5)
        value = int(right.recv(64))
    reader, writer = os.pipe()
    os.write(writer, b"%d" % (value * 3))
    results[number] = int(os.read(reader, 64))
    os.close(reader)
    os.close(writer)
    time.sleep(0.0002)


def step(number, state):
    results = {}
    threads = [threading.Thread(target=child_sum, args=(number * 8 + i, results)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(300):
        state = hashlib.sha256(state + repr(sorted(results.items())).encode()).digest()
    return state


def main():
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, 0.0017, 0.0017)
    state = b""
    number = 0
    print("ready", flush=True)
    while True:
        line = sys.stdin.readline()
        if not line:
            signal.setitimer(signal.ITIMER_REAL, 0)  # it would end the interpreter while that ends
            return
        for _ in range(int(line)):
            state = step(number, state)
            number += 1
        print(number, state.hex(), flush=True)


main()
