"""What a program loses to a profiler.

The speed of a shared machine wanders by half within seconds. So the profiler is stopped and continued (SIGSTOP,
SIGCONT) many times while it records, and each short stretch without it is compared with those beside it.
"""

from __future__ import annotations

import os
import signal
import struct
import time
from pathlib import Path

from bench_tools import processes
from support.targets import thread_states

TURNS = 80
"""Stretches without the profiler."""
WITH, WITHOUT = 0.26, 0.12
"""Their seconds: a rate of which half is missed would be lowered."""
SETTLED = 0.01
"""Seconds after a switch that count for neither."""
MAX_TRIES = 100
"""A profiler that nearly always holds the target is not switched off."""


def _switch_off(profiler: int, target: int) -> bool:
    """Stops the profiler, at a moment at which it holds none of the target's threads; whether there was one."""
    for _ in range(MAX_TRIES):
        os.kill(profiler, signal.SIGSTOP)
        time.sleep(0.002)
        if all(state[0] not in "tT" for state in thread_states(target).values()):
            return True
        os.kill(profiler, signal.SIGCONT)
        time.sleep(0.003)
    return False


def counters(path: Path, count: int = 1) -> Path:
    """A new file of as many numbers of 64 bits. In each a thread of the target counts its rounds."""
    path.write_bytes(bytes(8 * count))
    return path


def _rounds(shared: Path) -> int:
    return sum(number for (number,) in struct.iter_unpack("Q", shared.read_bytes()))


def _speed(shared: Path, seconds: float) -> float:
    time.sleep(SETTLED)
    began, before = time.monotonic(), _rounds(shared)
    time.sleep(seconds)
    return (_rounds(shared) - before) / (time.monotonic() - began)


def lost(tool: int, target: int, shared: Path, turns: int = TURNS) -> list[float]:
    """How much slower the target, which counts in `shared`, is while the tool, which records it, runs: percent, of each
    turn.

    There are fewer turns where the tool cannot be switched off.
    """
    profiler = processes(tool)[:2][-1].pid
    found = []
    before = _speed(shared, WITH)
    for _ in range(turns):
        if not _switch_off(profiler, target):
            break
        try:
            alone = _speed(shared, WITHOUT)
        finally:
            os.kill(profiler, signal.SIGCONT)
        after = _speed(shared, WITH)
        # None: it held the target after all, by a stop that it was asking for when it was stopped itself.
        if alone:
            found.append(100 * (1 - (before + after) / 2 / alone))
        before = after
    return found
