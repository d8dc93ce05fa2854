"""One thread in vfork, which cannot be stopped (state D), beside a busy one: vforks.py LIBRARY."""

import ctypes
import sys
import threading


def stuck(library):
    while library.vfork_sleep(300000) == 7:
        pass
    print("wrong status", flush=True)


def busy():
    value = 1
    while True:
        value = (value * 31 + 7) & 0xFFFFF


def main():
    library = ctypes.CDLL(sys.argv[1])
    threading.Thread(target=stuck, args=(library,), daemon=True).start()
    threading.Thread(target=busy, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


main()
