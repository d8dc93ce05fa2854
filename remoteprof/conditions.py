"""Conditions on a process or a tree, such as cpu>80% or rss>2GiB."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import NamedTuple

INTERVAL = 1.0
"""Seconds between two looks; CPU time is known in clock ticks of 10 ms."""


class Condition(NamedTuple):
    """`what` ("cpu": percent of one core; "rss": bytes) is over `limit`."""

    text: str
    what: str
    limit: float


class Watch:
    """Looks at processes from time to time, and tells when a condition begins to hold."""

    def __init__(self, conditions: Iterable[Condition], tree: bool) -> None:
        """`tree`: the CPU time of children that have ended counts, in the process that has waited for them."""
        self._conditions = list(conditions)
        self._tree = tree
        self._holding: set[Condition] = set()
        self._used: dict[int, tuple[float, float]] = {}
        self._looked = 0.0

    def risen(self, pids: Iterable[int], now: float | None = None) -> list[str]:
        """The conditions that hold now and did not at the last look, with what was found; at most one look in INTERVAL.
        `now`: on time.monotonic()."""
        now = time.monotonic() if now is None else now
        passed = now - self._looked
        if passed < INTERVAL or not self._conditions:
            return []
        found = self.measure(pids, passed)
        self._looked = now
        holding = {condition for condition in self._conditions if found[condition.what] > condition.limit}
        new = [condition for condition in self._conditions if condition in holding - self._holding]
        self._holding = holding
        return [f"{condition.text} ({_shown(condition.what, found[condition.what])})" for condition in new]

    def measure(self, pids: Iterable[int], passed: float) -> dict[str, float]:
        """CPU time in percent of `passed` seconds, and resident bytes, of all processes that are there."""
        import psutil  # takes longer to load than a sampler to start

        used: dict[int, tuple[float, float]] = {}
        rss = spent = 0.0
        for pid in pids:
            with contextlib.suppress(psutil.Error, OSError):
                process = psutil.Process(pid)
                times = process.cpu_times()
                seconds = times.user + times.system
                if self._tree:
                    seconds += times.children_user + times.children_system
                rss += process.memory_info().rss
                used[pid] = (process.create_time(), seconds)
                before = self._used.get(pid)
                if before is not None and before[0] == used[pid][0]:
                    spent += seconds - before[1]
                elif self._looked and time.time() - used[pid][0] < passed:
                    spent += seconds  # born since
        if self._tree:
            # What ended meanwhile is in the children's time of others, of which we had seen a part.
            spent -= sum(seconds for pid, (_, seconds) in self._used.items() if pid not in used)
        first = not self._looked
        self._used = used
        return {"cpu": 0.0 if first else 100 * max(spent, 0.0) / passed, "rss": rss}


def _shown(what: str, value: float) -> str:
    return f"{value:.0f} %" if what == "cpu" else f"{value / (1 << 20):.0f} MiB"
