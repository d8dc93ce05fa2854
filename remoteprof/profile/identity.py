"""What makes two functions of two profiles the same one: name, file and the build id of the module. Never an address:
the next start of a program has it elsewhere, and the next build has something else there."""

from __future__ import annotations

from typing import NamedTuple

from remoteprof.profile.model import EMPTY_STACK, Location, Sample, module_frame


class FunctionId(NamedTuple):
    """A function over profiles; `build_id` is the module's, "" = none. Code without a name goes by its module, as
    `[libc.so.6]`."""

    name: str
    file: str
    build_id: str


EMPTY = FunctionId(EMPTY_STACK, "", "")


class Identities:
    """The functions of locations, each location looked at once. Holds on to its locations."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Location, tuple[FunctionId, ...]]] = {}
        self._same: dict[FunctionId, FunctionId] = {}

    def of(self, location: Location) -> tuple[FunctionId, ...]:
        """The functions at a location, the innermost inlined call first; never empty."""
        known = self._known.get(id(location))
        if known is None:
            known = self._known[id(location)] = (location, tuple(map(self._one, _functions(location))))
        return known[1]

    def leaf(self, sample: Sample) -> FunctionId:
        """The function that was running."""
        return self.of(sample.locations[0])[0] if sample.locations else EMPTY

    def _one(self, function: FunctionId) -> FunctionId:
        return self._same.setdefault(function, function)


def _functions(location: Location) -> list[FunctionId]:
    mapping = location.mapping
    build_id = mapping.build_id if mapping is not None else ""
    if location.lines:
        return [FunctionId(line.function.name, line.function.file, build_id) for line in location.lines]
    return [FunctionId(module_frame(mapping), "", build_id)]
