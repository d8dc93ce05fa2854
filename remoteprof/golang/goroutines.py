"""The goroutines of a process: reading them, and the profile of them that Go's own runtime/pprof would write."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remoteprof.golang.stacks import Frame, Places, Stack, answer, comments_of, decoded
from remoteprof.process import name_of
from remoteprof.profile.build import set_flags
from remoteprof.profile.model import Label, Profile, Sample, ValueType
from remoteprof.sampler import Sampler

if TYPE_CHECKING:
    from remoteprof import _native
    from remoteprof.modules import Module

COUNT = ValueType("goroutine", "count")


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
        places = Places(self.modules)
        samples = [
            Sample(
                tuple(places.locations(group[0].stack)),
                [len(group)],
                tuple(Label(key, value) for key, value in group[0].labels),
            )
            for group in self.groups()
        ]
        comments = comments_of(command, f"{self.process} (pid {self.pid}), {self.version or 'Go'}", self.notes)
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
        told = answer(sampler).goroutines
    finally:
        sampler.close()
    assert told is not None
    return Goroutines(
        pid, name_of(pid), told["version"], list(_goroutines(told)), reader.modules(), told["notes"], began
    )


def _goroutines(told: _native.Goroutines) -> Iterator[Goroutine]:
    frames, stacks = decoded(told)
    labels = [tuple(of) for of in told["labels"]]
    for ident, state, reason, waited, stack, creator, parent, label in told["rows"]:
        by = frames[creator] if creator else None
        yield Goroutine(ident, state, reason, waited, stacks[stack], by, parent, labels[label])
