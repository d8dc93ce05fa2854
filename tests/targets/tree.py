"""Has descendants of a kind, each of which is busy for a while in a function of its own: tree.py KIND.

Prints, as JSON, the CPU seconds of itself and of all that it waited for, and the pids of those that were busy.
"""

import ctypes
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time

SECONDS = 0.3


def burn(seconds=SECONDS):
    end = time.process_time() + seconds
    value = 1
    while time.process_time() < end:
        for step in range(2000):
            value = (value * 31 + step) & 0xFFFFF
    return os.getpid()


def child_of_fork():
    return burn()


def child_of_pool(_):
    return burn()


def child_of_clone():
    return burn()


def daemon():
    return burn()


def forks():
    pids = []
    for _ in range(2):
        pid = os.fork()
        if not pid:
            child_of_fork()
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    return pids


def clones():
    # A fork that no function of libc knows of: clone(SIGCHLD).
    pid = ctypes.CDLL(None).syscall(56, 17, 0, 0, 0, 0)
    if not pid:
        child_of_clone()
        os._exit(0)
    os.waitpid(pid, 0)
    return [pid]


def runs():
    command = [sys.executable, "-S", __file__, "burn"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        return [int(child.stdout.readline())]


def vforks():
    # posix_spawn is a vfork and an exec.
    pid = os.posix_spawn(sys.executable, [sys.executable, "-S", __file__, "quiet"], os.environ)
    os.waitpid(pid, 0)
    return [pid]


def pool(method):
    context = multiprocessing.get_context(method)
    with context.Pool(2) as workers:
        pids = workers.map(child_of_pool, range(4), chunksize=1)
        # So that they end by themselves, and their time is handed on.
        workers.close()
        workers.join()
    return sorted(set(pids))


def daemons():
    ours, theirs = os.pipe()
    if not os.fork():
        os.setsid()
        if not os.fork():
            daemon()
            os.write(theirs, str(os.getpid()).encode())
            os._exit(0)
        os._exit(0)
    os.wait()
    return [int(os.read(ours, 20))]


def short():
    for _ in range(300):
        subprocess.run(["/bin/true"], check=True)
    return []


KINDS = {
    "fork": forks,
    "clone": clones,
    "subprocess": runs,
    "vfork": vforks,
    "pool-fork": lambda: pool("fork"),
    "pool-spawn": lambda: pool("spawn"),
    "pool-forkserver": lambda: pool("forkserver"),
    "daemon": daemons,
    "short": short,
}

if __name__ == "__main__":
    if sys.argv[1] == "burn":
        print(burn(), flush=True)
    elif sys.argv[1] == "quiet":
        burn()
    else:
        busy = KINDS[sys.argv[1]]()
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        seconds = sum(one.ru_utime + one.ru_stime for one in used)
        print(json.dumps({"seconds": seconds, "busy": busy}), flush=True)
