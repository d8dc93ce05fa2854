"""A recording while it runs: its processes, and signs that it samples."""

from __future__ import annotations

import contextlib
import subprocess

import psutil

from support.targets import gone, wait_until


def processes(pid: int) -> list[int]:
    """remoteprof's own processes: the supervisor `pid` and those below it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    return []


def woken(pid: int) -> int:
    """How often what is below the supervisor `pid` has woken: the sampler, and a command that it runs."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return sum(child.num_ctx_switches().voluntary for child in psutil.Process(pid).children(recursive=True))
    return 0


def sampling(recorder: subprocess.Popen[str], wakeups: int = 300) -> None:
    """Wait until the sampler has woken so often that it can only be ticking."""

    def ticking() -> bool:
        assert recorder.poll() is None, f"the recording ended, with {recorder.returncode}: {recorder.communicate()}"
        return woken(recorder.pid) > wakeups

    wait_until(ticking, "a sampler at work")


def sampling_on(recorder: subprocess.Popen[str], more: int = 100) -> None:
    """Wait until the sampler has gone on for so many wake-ups from now."""
    sampling(recorder, woken(recorder.pid) + more)


def all_gone(pids: list[int]) -> bool:
    return all(gone(pid) for pid in pids)
