"""Stacks of Go programs as the native side tells them, and as locations of a profile."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from remoteprof.errors import RemoteprofError
from remoteprof.profile.model import Function, Line, Location, Mapping

if TYPE_CHECKING:
    from remoteprof import _native
    from remoteprof.modules import Module
    from remoteprof.sampler import Sampler

_KINDS = {
    "native": (False, True, False),
    "inlined": (True, False, False),
    "outermost": (True, True, False),
    "label": (False, True, True),
}
"""What the native side says of a frame → inlined, last, label."""
_WAIT = 0.25
"""Seconds that a wait for the answer lasts at most, so that Ctrl-C is seen."""


class Frame(NamedTuple):
    """A frame of a stack. Numbers are 0 and texts are "" where unknown; `address` lies within the call, `entry` is the
    first address of the function that holds the code."""

    function: str
    file: str
    line: int
    start_line: int
    address: int
    entry: int
    inlined: bool
    """Whether it was inlined into the next one, or into one that is left out."""
    last: bool
    """Whether the next one is at another place."""
    label: bool
    """Whether it only says what is known instead, such as `[truncated]`."""


Stack = tuple[Frame, ...]
"""Leaf first."""


def short_name(function: str) -> str:
    """A name without the type arguments of a generic function, as Go prints it (src/runtime/symtab.go,
    funcNameForPrint)."""
    first, last = function.find("["), function.rfind("]")
    return f"{function[:first]}[...]{function[last + 1 :]}" if 0 <= first < last else function


def decoded(told: _native.Goroutines | _native.Buckets) -> tuple[list[Frame], list[Stack]]:
    """Frames and stacks of an answer."""
    entries = memoryview(told["entries"]).cast("Q").tolist()
    frames = [
        Frame(name, file, line, start_line, address, entry, *_KINDS[kind])
        for (kind, name, file, line, start_line, address, _), entry in zip(told["frames"], entries, strict=True)
    ]
    indices = memoryview(told["stack_frames"]).cast("I").tolist()
    starts = memoryview(told["stack_starts"]).cast("I").tolist()
    return frames, [tuple([frames[index] for index in indices[start:end]]) for start, end in pairwise(starts)]


def answer(sampler: Sampler) -> _native.Event:
    """The next event of a sampler that was asked something. Raises the error that it answers with, and SamplerDied."""
    event = None
    while event is None:
        event = sampler.receive(_WAIT)
    if event.error is not None:
        raise event.error
    if event.goroutines is None and event.buckets is None:
        raise RemoteprofError(f"the sampler process answered with {event.kind}")
    return event


def comments_of(command: str, target: str, notes: list[str]) -> list[str]:
    """What a profile says of itself."""
    system = os.uname()
    host = f"host: {system.sysname} {system.release} {system.machine}, {os.cpu_count()} CPUs"
    return [f"command: {command}", host, f"target: {target}", *notes]


class Places:
    """Locations, each once, in the mappings that they are in. short: functions are shown without type arguments; two
    instantiations stay two functions."""

    def __init__(self, modules: list[Module], *, short: bool = False) -> None:
        self._short = short
        self.mappings = [
            Mapping(module.start, module.end, module.offset, module.path, module.build_id) for module in modules
        ]
        self._ordered = sorted(self.mappings, key=lambda mapping: mapping.start)
        self._starts = [mapping.start for mapping in self._ordered]
        self._locations: dict[Stack, Location] = {}
        self._functions: dict[tuple[str, str, int], Function] = {}

    def all(self) -> Iterator[Location]:
        """Those that were asked for."""
        return iter(self._locations.values())

    def locations(self, stack: Stack) -> Iterator[Location]:
        """Those of a stack, leaf first."""
        first = 0
        for index, frame in enumerate(stack):
            if frame.last:
                yield self._location(stack[first : index + 1])
                first = index + 1

    def _location(self, frames: Stack) -> Location:
        location = self._locations.get(frames)
        if location is None:
            lines = [Line(self._function(frame), frame.line) for frame in frames if frame.function]
            address = frames[0].address
            location = self._locations[frames] = Location(lines, self._mapping(address), address)
        return location

    def _function(self, frame: Frame) -> Function:
        key = (frame.function, frame.file, frame.start_line)
        function = self._functions.get(key)
        if function is None:
            name, file, start_line = key
            shown = short_name(name) if self._short else name
            function = self._functions[key] = Function(shown, name, file, start_line)
        return function

    def _mapping(self, address: int) -> Mapping | None:
        at = bisect_right(self._starts, address) - 1
        return self._ordered[at] if at >= 0 and address < self._ordered[at].limit else None
