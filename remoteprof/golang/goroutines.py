"""The goroutines of a process: reading them, and the profile of them that Go's own runtime/pprof would write."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from remoteprof.errors import RemoteprofError
from remoteprof.process import name_of
from remoteprof.profile.build import set_flags
from remoteprof.profile.model import Function, Label, Line, Location, Mapping, Profile, Sample, ValueType
from remoteprof.sampler import Sampler

if TYPE_CHECKING:
    from remoteprof import _native
    from remoteprof.modules import Module

COUNT = ValueType("goroutine", "count")
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
    """A frame of a goroutine. Numbers are 0 and `file` is "" where unknown; `address` lies within the call, `entry` is
    the first address of the function that holds the code."""

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


@dataclass(frozen=True, slots=True)
class Goroutine:
    """A goroutine. Stacks, creators and labels that are equal are one object."""

    id: int
    state: str
    """runnable, running, syscall, waiting, …"""
    reason: str
    """What it waits for, such as "chan receive"."""
    waited_ns: int
    """How long it has been waiting, as far as the garbage collector has seen it; 0 = unknown."""
    stack: Stack
    creator: Frame | None
    parent: int
    """The goroutine that created it (Go 1.21 and later); 0 = unknown."""
    labels: tuple[tuple[str, str], ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "goroutine": self.id,
            "state": self.state,
            "reason": self.reason,
            "waited_ns": self.waited_ns,
            "labels": dict(self.labels),
            "frames": [_shown(frame) for frame in self.stack],
            "created_by": _shown(self.creator) if self.creator and self.id != 1 else None,
            "created_in": self.parent,
        }


def _shown(frame: Frame) -> dict[str, Any]:
    return {"function": frame.function, "file": frame.file, "line": frame.line, "address": frame.address}


@dataclass(slots=True)
class Goroutines:
    """All goroutines of a process, by number."""

    pid: int
    process: str
    version: str
    """Of Go, such as "go1.26.8"; "" = unknown."""
    all: list[Goroutine]
    modules: list[Module]
    notes: list[str] = field(default_factory=list)
    time_ns: int = 0

    def groups(self) -> list[list[Goroutine]]:
        """Those of equal stack and labels together: the largest group first, then as Go sorts them, by the text of
        their addresses and labels."""
        found: dict[tuple[int, int], list[Goroutine]] = {}
        for one in self.all:
            found.setdefault((id(one.stack), id(one.labels)), []).append(one)
        return sorted(found.values(), key=lambda group: (-len(group), group_key(group[0])))

    def profile(self, command: str) -> Profile:
        """The profile, of the value `goroutine` (count); `command` is put into its comments."""
        places = _Places(self.modules)
        samples = [
            Sample(
                tuple(places.locations(group[0].stack)),
                [len(group)],
                tuple(Label(key, value) for key, value in group[0].labels),
            )
            for group in self.groups()
        ]
        system = os.uname()
        comments = [
            f"command: {command}",
            f"host: {system.sysname} {system.release} {system.machine}, {os.cpu_count()} CPUs",
            f"target: {self.process} (pid {self.pid}), {self.version or 'Go'}",
            *self.notes,
        ]
        profile = Profile([COUNT], samples, places.mappings, COUNT.type, COUNT, 1, self.time_ns, comments=comments)
        profile.notes = list(self.notes)
        set_flags(profile.mappings, places.all())
        return profile


def group_key(one: Goroutine) -> str:
    """What goroutines are grouped by in Go's own text: their return addresses, and their labels."""
    text = "@" + "".join(f" {frame.address + 1:#x}" for frame in one.stack if not frame.label)
    if one.labels:
        labels = ", ".join(f"{_quoted(key)}:{_quoted(value)}" for key, value in one.labels)
        text += f"\n# labels: {{{labels}}}"
    return text


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Places:
    """Locations, each once, in the mappings that they are in."""

    def __init__(self, modules: list[Module]) -> None:
        self.mappings = [
            Mapping(module.start, module.end, module.offset, module.path, module.build_id) for module in modules
        ]
        self._ordered = sorted(self.mappings, key=lambda mapping: mapping.start)
        self._starts = [mapping.start for mapping in self._ordered]
        self._locations: dict[Stack, Location] = {}
        self._functions: dict[tuple[str, str, int], Function] = {}

    def all(self) -> Iterator[Location]:
        return iter(self._locations.values())

    def locations(self, stack: Stack) -> Iterator[Location]:
        first = 0
        for index, frame in enumerate(stack):
            if frame.last:
                yield self._location(stack[first : index + 1])
                first = index + 1

    def _location(self, frames: Stack) -> Location:
        location = self._locations.get(frames)
        if location is None:
            lines = [Line(self._function(frame), frame.line) for frame in frames]
            address = frames[0].address
            location = self._locations[frames] = Location(lines, self._mapping(address), address)
        return location

    def _function(self, frame: Frame) -> Function:
        key = (frame.function, frame.file, frame.start_line)
        function = self._functions.get(key)
        if function is None:
            name, file, start_line = key
            function = self._functions[key] = Function(name, name, file, start_line)
        return function

    def _mapping(self, address: int) -> Mapping | None:
        at = bisect_right(self._starts, address) - 1
        return self._ordered[at] if at >= 0 and address < self._ordered[at].limit else None


def read(pid: int, *, system: bool = False) -> Goroutines:
    """The goroutines of process `pid`; `system`: also those of the runtime itself, which Go's own profiles leave out.

    Those that run are stopped for some microseconds, one thread at a time; the others are read without a stop. Raises
    ProcessNotFound, PermissionDenied, AlreadyTraced, SamplerDied, and NothingToProfile where there is no Go, or none
    that is understood.
    """
    from remoteprof._native import Target
    from remoteprof.modules import Reader

    reader = Reader(Target(pid))
    reader.look()
    sampler = Sampler()
    try:
        if pid == os.getpid():
            sampler.allow_tracing_us()
        began = time.time_ns()
        sampler.ask(lambda link: link.goroutines(pid, system))
        event = None
        while event is None:
            event = sampler.receive(_WAIT)
    finally:
        sampler.close()
    if event.error is not None:
        raise event.error
    if event.goroutines is None:
        raise RemoteprofError(f"the sampler process answered with {event.kind}")
    told = event.goroutines
    return Goroutines(
        pid, name_of(pid), told["version"], list(_goroutines(told)), reader.modules(), told["notes"], began
    )


def _goroutines(told: _native.Goroutines) -> Iterator[Goroutine]:
    entries = memoryview(told["entries"]).cast("Q").tolist()
    frames = [
        Frame(name, file, line, start_line, address, entry, *_KINDS[kind])
        for (kind, name, file, line, start_line, address, _), entry in zip(told["frames"], entries, strict=True)
    ]
    indices = memoryview(told["stack_frames"]).cast("I").tolist()
    starts = memoryview(told["stack_starts"]).cast("I").tolist()
    stacks = [tuple([frames[index] for index in indices[start:end]]) for start, end in pairwise(starts)]
    labels = [tuple(of) for of in told["labels"]]
    for ident, state, reason, waited, stack, creator, parent, label in told["rows"]:
        by = frames[creator] if creator else None
        yield Goroutine(ident, state, reason, waited, stacks[stack], by, parent, labels[label])
