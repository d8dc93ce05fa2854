"""Many short waits in C: waits.py LIBRARY. Until standard input ends; then prints how many of each kind were done and
how many of them ended in EINTR, as JSON."""

import ctypes
import json
import sys
import threading

KINDS = (
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "semop",
    "semtimedop",
    "sigtimedwait",
    "recv",
    "io_getevents",
)
ended = threading.Event()
counts = {kind: {"waits": 0, "interrupted": 0} for kind in KINDS}


def wait(library, number):
    mine = counts[KINDS[number]]
    while not ended.is_set():
        interrupted = library.wait_loop(number, 20, 20000)
        mine["waits"] += 20
        mine["interrupted"] += interrupted
        if interrupted < 0:
            return


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.wait_loop.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_long]
    library.wait_loop.restype = ctypes.c_long
    threads = [threading.Thread(target=wait, args=(library, number)) for number in range(len(KINDS))]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()
    print(json.dumps(counts), flush=True)


main()
