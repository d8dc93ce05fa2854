"""Waits that the program's own SIGUSR1 must break: eintrs.py LIBRARY KIND ROUNDS. Prints how many it saw broken."""

import ctypes
import sys
import threading


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.own_eintrs.argtypes = [ctypes.c_int, ctypes.c_long]
    library.own_eintrs.restype = ctypes.c_long
    seen = []
    worker = threading.Thread(target=lambda: seen.append(library.own_eintrs(int(sys.argv[2]), int(sys.argv[3]))))
    print("ready", flush=True)
    sys.stdin.readline()  # the test's word that the recording runs
    worker.start()
    worker.join()
    print(seen[0], flush=True)
    sys.stdin.read()


main()
