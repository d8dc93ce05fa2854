"""Starts and ends threads, many at a time, and loads and unloads a library: churn.py LIBRARY THREADS. Prints "round N"
after each time; goes on until its input ends."""

import _ctypes
import ctypes
import select
import sys
import threading


def wait(gate):
    gate.wait()


def work(library):
    library.busy(ctypes.c_double(0.002))


def main():
    path, threads = sys.argv[1], int(sys.argv[2])
    print("ready", flush=True)
    count = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        library = ctypes.CDLL(path)
        library.busy.argtypes = [ctypes.c_double]
        gate = threading.Event()
        crowd = [threading.Thread(target=wait, args=(gate,)) for _ in range(threads)]
        for thread in crowd:
            thread.start()
        for _ in range(50):
            work(library)
        gate.set()
        for thread in crowd:
            thread.join()
        _ctypes.dlclose(library._handle)
        count += 1
        print("round", count, flush=True)


main()
