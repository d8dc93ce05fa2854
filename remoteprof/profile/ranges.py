"""Which range of memory an address is in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class Ranges:
    """Ranges `start <= address < limit`, searched in logarithmic time. Of two that overlap the first one given counts,
    the other is never found: such lists are broken anyway, and may be long."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._found: list[tuple[int, int]] = []
        for number, (start, limit) in enumerate(ranges):
            place = bisect_right(self._starts, start)
            before = place == 0 or self._found[place - 1][0] <= start
            behind = place == len(self._starts) or limit <= self._starts[place]
            if start < limit and before and behind:
                self._starts.insert(place, start)
                self._found.insert(place, (limit, number))

    def find(self, address: int) -> int | None:
        """The number of the range that holds an address."""
        place = bisect_right(self._starts, address) - 1
        if place >= 0 and address < self._found[place][0]:
            return self._found[place][1]
        return None
