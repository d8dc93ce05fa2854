"""What a program loses to a profiler.

The speed of a shared machine wanders by half within seconds. So the profiler is stopped and continued (SIGSTOP,
SIGCONT) many times while it records, and each short stretch without it is compared with those beside it.
"""

from __future__ import annotations

import math
import os
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import psutil

TURNS = 80
"""Stretches without the profiler."""
WITH, WITHOUT = 0.26, 0.12
"""Their seconds: a rate of which half is missed would be lowered."""
SETTLED = 0.01
"""Seconds after a switch that count for neither."""
MAX_TRIES = 100
"""A profiler that nearly always holds the target is not switched off."""


def _held(target: int) -> bool:
    """Whether a thread of the target is stopped."""
    stats = (task / "stat" for task in Path(f"/proc/{target}/task").iterdir())
    return any(stat.read_text().rpartition(") ")[2][0] in "tT" for stat in stats)


def _switch_off(profiler: int, target: int) -> bool:
    """Stops the profiler, at a moment at which it holds none of the target's threads; whether there was one."""
    for _ in range(MAX_TRIES):
        os.kill(profiler, signal.SIGSTOP)
        time.sleep(0.002)
        if not _held(target):
            return True
        os.kill(profiler, signal.SIGCONT)
        time.sleep(0.003)
    return False


def _speed(rounds: Callable[[], int], seconds: float) -> float:
    time.sleep(SETTLED)
    began, before = time.monotonic(), rounds()
    time.sleep(seconds)
    return (rounds() - before) / (time.monotonic() - began)


def lost(tool: int, target: int, rounds: Callable[[], int], turns: int = TURNS) -> list[float]:
    """How much slower the target is while the tool, which records it, runs: percent, of each turn.

    There are fewer turns where the tool cannot be switched off.
    """
    children = psutil.Process(tool).children(recursive=True)
    profiler = children[0].pid if children else tool
    found = []
    before = _speed(rounds, WITH)
    for _ in range(turns):
        if not _switch_off(profiler, target):
            break
        try:
            alone = _speed(rounds, WITHOUT)
        finally:
            os.kill(profiler, signal.SIGCONT)
        after = _speed(rounds, WITH)
        found.append(100 * (1 - (before + after) / 2 / alone))
        before = after
    return found


def middle(values: list[float]) -> dict[str, float]:
    """The median, and the middle half; of too few values none."""
    if len(values) < 2:
        return dict.fromkeys(("median", "low", "high"), math.nan)
    low, median, high = statistics.quantiles(values, n=4)
    return {"median": median, "low": low, "high": high}


def text(values: dict[str, float], form: str) -> str:
    """For people."""
    return f"{values['median']:{form}} ({values['low']:{form}} to {values['high']:{form}})"
