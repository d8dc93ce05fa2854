"""Threads of a C library in a Python process, one that calls back and one that never does. Arguments: the library, and
how many Python threads wait beside them."""

import ctypes
import sys
import threading

library = ctypes.CDLL(sys.argv[1])
waiting = threading.Event()
CALLBACK = ctypes.CFUNCTYPE(None)


def spin(count):
    value = 7
    for step in range(count):
        value = (value * 31 + step) & 0xFFFF
    return value


def called():
    spin(2000)


callback = CALLBACK(called)
for _ in range(int(sys.argv[2])):
    threading.Thread(target=waiting.wait, daemon=True).start()
library.pool_start(callback)
library.pool_start(None)
print("ready", flush=True)
sys.stdin.readline()
