"""Threads that compete for the GIL and C threads that have let go of it: threads.py LIBRARY PYTHON_THREADS C_THREADS.
Busy until killed."""

import ctypes
import sys
import threading


def python_work():
    value = 1
    while True:
        for step in range(1000):
            value = (value * 31 + step) & 0xFFFFF


def c_work(library):
    while True:
        library.busy(ctypes.c_double(0.02))


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.busy.argtypes = [ctypes.c_double]
    for _ in range(int(sys.argv[2])):
        threading.Thread(target=python_work, daemon=True).start()
    for _ in range(int(sys.argv[3])):
        threading.Thread(target=c_work, args=(library,), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


main()
