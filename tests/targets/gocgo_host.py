"""Loads the Go library of its first argument and calls into it for ever, on a thread."""

import ctypes
import sys
import threading


def call_go(library: ctypes.CDLL) -> None:
    while True:
        library.Enter(50000)


def host(library: ctypes.CDLL) -> None:
    call_go(library)


threading.Thread(target=host, args=(ctypes.CDLL(sys.argv[1]),), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
