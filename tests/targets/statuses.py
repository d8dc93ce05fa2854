"""A tree whose ends and signals are all checked by their parents, and then an end of its own: statuses.py END, the exit
status, or minus a signal. Prints "fine" if nothing was lost, and no zombie is left below it."""

import ctypes
import os
import signal
import sys
import time

SIGNALS = 40
FIRST = signal.SIGRTMIN + 2


def end(how):
    if how < 0:
        signal.signal(-how, signal.SIG_DFL) if -how != signal.SIGKILL else None
        os.kill(os.getpid(), -how)
    os._exit(how)


def child(how, burn):
    pid = os.fork()
    if not pid:
        stop = time.process_time() + burn
        while time.process_time() < stop:
            sum(range(500))
        end(how)
    return pid


def counter():
    """Counts signals that queue, so that none may be lost; asleep and running by turns."""
    pid = os.fork()
    if pid:
        return pid
    for count in range(SIGNALS):
        signal.sigwaitinfo([FIRST])
        sum(range(2000 * (count % 3)))
    os._exit(SIGNALS)


def main():
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans become children of this one
    signal.pthread_sigmask(signal.SIG_BLOCK, [FIRST])
    counting = counter()
    wanted = {}
    for how, burn in ((0, 0), (3, 0.004), (-9, 0.002), (-15, 0), (42, 0.01), (255, 0), (-6, 0.003)):
        wanted[child(how, burn)] = how
    for _ in range(SIGNALS):
        os.kill(counting, FIRST)
        time.sleep(0.0003)
    orphans = os.fork()
    if not orphans:
        child(5, 0.002)
        os._exit(6)
    wanted[orphans], wanted[counting] = 6, SIGNALS
    found = []
    for _ in range(len(wanted) + 1):
        pid, status = os.wait()
        how = os.waitstatus_to_exitcode(status)
        found.append(how)
        assert wanted.get(pid, 5) == how, (pid, wanted.get(pid), how)
    try:
        print("left:", os.wait())
    except ChildProcessError:
        print("fine", flush=True)
    end(int(sys.argv[1]))


main()
