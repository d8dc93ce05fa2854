"""The stats of a long recording: each window's, and their sums, in bounded room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remoteprof.stats import add_up, finished

if TYPE_CHECKING:
    from remoteprof.recording import Recording

MAX_WINDOWS = 1000
"""Most windows that are listed one by one; the oldest ones above that are added up in one entry."""
MAX_PROCESSES = 1000
"""Most processes that are listed one by one; those seen later are added up in one entry."""


class Totals:
    """What windows add up to."""

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}
        self._processes: dict[int, dict[str, Any]] = {}
        self._windows: list[dict[str, Any]] = []
        self._folded: dict[str, Any] = {}
        self._since_ns = 0

    def __bool__(self) -> bool:
        """Whether anything was counted."""
        return bool(self._whole)

    def count(self, recording: Recording) -> None:
        """Adds the window that `recording` is to the sums."""
        self._since_ns = recording.since_ns
        self._whole = _in_turn(self._whole, recording.total())
        for number, part in recording.by_number().items():
            known = self._processes.get(number, {})
            if not known and len(self._processes) >= MAX_PROCESSES:
                number, known = 0, self._processes.get(0, {})
                part = {**part, "pid": 0, "process": "[others]"}
            self._processes[number] = _in_turn(known, part)

    def add(self, recording: Recording) -> dict[str, Any]:
        """Lists a window. Gives its entry, to which the caller may add."""
        entry = {
            "start_ns": min((batch.start_ns for batch in recording.batches if batch.start_ns), default=0),
            **finished(recording.total(), recording.since_ns),
        }
        self._windows.append(entry)
        if len(self._windows) > MAX_WINDOWS:
            oldest = self._windows.pop(0)
            folded = int(self._folded.get("folded", 0)) + 1
            size = int(self._folded.get("output_bytes", 0)) + oldest["output_bytes"]
            start = self._folded.get("start_ns", oldest["start_ns"])
            self._folded = _in_turn(self._folded, oldest)
            self._folded |= {"folded": folded, "output_bytes": size, "start_ns": start, "path": None}
        return entry

    def stats(self) -> dict[str, Any]:
        """The object of `--stats`, with `windows`, one each, the oldest first. At least one was counted."""
        stats = finished(self._whole, self._since_ns)
        if len(self._processes) > 1:
            stats["processes"] = [finished(part, self._since_ns) for part in self._processes.values()]
        stats["windows"] = [*([self._folded] if self._folded else []), *self._windows]
        stats["output_bytes"] = sum(window["output_bytes"] for window in stats["windows"])
        return stats


def _in_turn(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The sum of stats of two times: they follow each other."""
    if not before:
        return after
    return add_up([before, after]) | {"duration_ns": before["duration_ns"] + after["duration_ns"]}
