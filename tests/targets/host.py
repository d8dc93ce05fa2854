"""A host program of remoteprof.record(): host.py MODE PID. While record() runs in a thread it starts children of its
own and checks every exit status that it sees. Prints "recorded N" and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import remoteprof

PID = int(sys.argv[2])
ended = threading.Event()
profiles: list[remoteprof.Profile] = []
SECONDS = 4.0
strangers: list[int] = []


def recording() -> None:
    profiles.append(remoteprof.record(PID, duration=SECONDS, rate=1000))
    ended.set()


def check(seen: int, expected: int) -> None:
    if seen != expected:
        print(f"status {seen}, expected {expected}", flush=True)
        os._exit(1)


def with_subprocess() -> int:
    count = 0
    while not ended.is_set():
        code = count % 200
        check(subprocess.run(["/bin/sh", "-c", f"exit {code}"], check=False).returncode, code)
        killed = subprocess.Popen(["/bin/sleep", "60"])
        killed.kill()
        check(killed.wait(), -signal.SIGKILL)
        count += 2
    return count


def with_any_child() -> int:
    """As servers that fork do: whichever child ends, waited for with -1 from a loop or a SIGCHLD handler."""
    count = 0
    while not ended.is_set():
        child = os.fork()
        if child == 0:
            os._exit(count % 200)
        pid, status = os.waitpid(-1, 0)
        if pid != child:
            # The end of the sampler process is seen by such a loop, as that of any child of a library; once, as an end.
            check(os.waitstatus_to_exitcode(status), 0)
            strangers.append(pid)
            check(len(strangers), 1)
            pid, status = os.waitpid(child, 0)
        check(os.waitstatus_to_exitcode(status), count % 200)
        count += 1
    return count


def with_asyncio() -> int:
    async def main() -> int:
        count = 0
        while not ended.is_set():
            children = [await asyncio.create_subprocess_exec("/bin/sh", "-c", f"exit {code}") for code in range(8)]
            for code, child in enumerate(children):
                check(await child.wait(), code)
            count += 8
        return count

    return asyncio.run(main())


def in_the_main_thread() -> int:
    """record() here; the children in a thread."""
    counts: list[int] = []
    other = threading.Thread(target=lambda: counts.append(with_subprocess()))
    other.start()
    recording()
    other.join()
    return counts[0]


MODES: dict[str, Callable[[], int]] = {
    "subprocess": with_subprocess,
    "any-child": with_any_child,
    "asyncio": with_asyncio,
    "main-thread": in_the_main_thread,
}


def main() -> None:
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    if sys.argv[1] == "main-thread":
        count = MODES["main-thread"]()
    else:
        thread = threading.Thread(target=recording)
        thread.start()
        count = MODES[sys.argv[1]]()
        thread.join()
    assert handlers == {number: signal.getsignal(number) for number in signal.valid_signals()}, "a handler was left"
    for own in threading.enumerate():
        # asyncio waits for each of its children in a thread, which may outlive the result that it gave.
        if own.name.startswith(("waitpid-", "asyncio-waitpid-", "asyncio_")):
            own.join(10)
    assert threading.active_count() == 1, f"a thread was left: {threading.enumerate()}"
    try:
        print(f"a child was left: {os.waitpid(-1, os.WNOHANG)}", flush=True)
    except ChildProcessError:
        print(f"recorded {profiles[0].stats['samples']} with {count}", flush=True)


main()
