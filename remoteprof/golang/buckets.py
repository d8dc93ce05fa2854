"""The heap, block and mutex profiles that the runtime of a Go program keeps: as Go's own runtime/pprof writes them, and
what was added in an interval as godeltaprof has it (github.com/grafana/pyroscope-go/godeltaprof v0.1.12).

Formulas: src/runtime/pprof/protomem.go (writeHeapProto, scaleHeapSample) and src/runtime/pprof/pprof.go
(printCountCycleProfile; scaleMutexProfile before Go 1.20).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from remoteprof.errors import NothingToProfile, RemoteprofError
from remoteprof.golang.stacks import Places, Stack, answer, comments_of, decoded
from remoteprof.process import name_of
from remoteprof.profile.build import set_flags
from remoteprof.profile.model import Label, Profile, Sample, ValueType
from remoteprof.sampler import Sampler

if TYPE_CHECKING:
    from remoteprof.modules import Module

_HEAP_TYPES = [
    ValueType("alloc_objects", "count"),
    ValueType("alloc_space", "bytes"),
    ValueType("inuse_objects", "count"),
    ValueType("inuse_space", "bytes"),
]
_EVENT_TYPES = [ValueType("contentions", "count"), ValueType("delay", "nanoseconds")]
_MOST = (1 << 63) - 1
"""The largest value of a profile."""


class Kind(NamedTuple):
    """A profile of Go's: what the runtime calls it that keeps it, and what it is made of."""

    name: str
    kept_as: str
    types: list[ValueType]
    default: str
    """The sample type that is shown first; "" = the last one, which Go leaves unsaid."""
    period_type: ValueType
    off: str
    """What is wrong where nothing is sampled."""
    on: str
    """How a program turns it on."""
    nothing: str
    """What is wrong where nothing has happened yet."""

    @property
    def is_heap(self) -> bool:
        """Whether allocations are counted, not events."""
        return self.kept_as == "heap"


_NO_ALLOCATIONS = (
    ValueType("space", "bytes"),
    "heap profiling is off: MemProfileRate is 0",
    "programs that leave runtime.MemProfileRate as it is are profiled",
    "no allocation has been sampled",
)
KINDS = {
    kind.name: kind
    for kind in (
        Kind("heap", "heap", _HEAP_TYPES, "inuse_space", *_NO_ALLOCATIONS),
        Kind("allocs", "heap", _HEAP_TYPES, "alloc_space", *_NO_ALLOCATIONS),
        Kind(
            "block",
            "block",
            _EVENT_TYPES,
            "",
            _EVENT_TYPES[0],
            "block profiling is off: its rate is 0",
            "the program has to call runtime.SetBlockProfileRate",
            "no goroutine has been blocked",
        ),
        Kind(
            "mutex",
            "mutex",
            _EVENT_TYPES,
            "",
            _EVENT_TYPES[0],
            "mutex profiling is off: its rate is 0",
            "the program has to call runtime.SetMutexProfileFraction",
            "no goroutine has waited for a mutex",
        ),
    )
}
"""By name."""


class Counted(NamedTuple):
    """What is counted at one stack. Heap: objects and bytes allocated and freed; others: events and ticks."""

    stack: Stack
    values: tuple[int, int, int, int]


@dataclass(slots=True)
class Reading:
    """A profile as the runtime has it at one time."""

    version: str
    counted: dict[int, Counted]
    """By the address of the bucket."""
    rate: int
    """Heap: one allocation in so many bytes is sampled; block: ticks; mutex: one event in so many. 0 or less = none."""
    factor: int
    ticks: int
    memory: tuple[int, int]
    notes: list[str]
    time_ns: int


class Reader:
    """Reads one profile of a process, as often as asked. Mappings and build ids are read once, and again where a stack
    leads outside of them. A context manager."""

    def __init__(self, pid: int, kind: str) -> None:
        """`kind` is one of KINDS. Raises ProcessNotFound, PermissionDenied, NothingToProfile."""
        from remoteprof._native import Target
        from remoteprof.modules import Reader as Modules

        self.pid = pid
        self.kind = KINDS[kind]
        self.process = name_of(pid)
        self._modules = Modules(Target(pid))
        self._modules.look()
        self._sampler = Sampler()
        if pid == os.getpid():
            self._sampler.allow_tracing_us()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it. May be called twice."""
        self._sampler.close()

    def read(self, *, delta: bool = False) -> Reading:
        """The profile now; `delta`: with the leaves that godeltaprof shows, those of internal/runtime too.

        Nothing is stopped for it. Raises ProcessNotFound, PermissionDenied, SamplerDied, and NothingToProfile where
        there is no Go, none that is understood, or no heap profiling linked into it.
        """
        began = time.time_ns()
        self._sampler.ask(lambda link: link.buckets(self.pid, self.kind.kept_as, delta))
        told = answer(self._sampler).buckets
        assert told is not None
        _, stacks = decoded(told)
        counted = {
            bucket: Counted(stacks[stack], (one, two, three, four))
            for bucket, stack, (one, two, three, four) in told["rows"]
        }
        return Reading(
            told["version"],
            counted,
            told["rate"],
            told["factor"],
            told["ticks"],
            told["memory"],
            told["notes"],
            began,
        )

    def check(self, now: Reading) -> None:
        """Raises NothingToProfile where nothing is sampled."""
        if now.rate <= 0:
            raise self._nothing(now, None)

    def profile(self, now: Reading, before: Reading | None = None, *, command: str, short: bool = False) -> Profile:
        """The profile of a reading: since the start of the program, or what was added since the reading `before`. Of
        the heap, what is in use is what is in use now in either case. `command` is put into its comments; short:
        functions without type arguments.

        Raises NothingToProfile where there is nothing in it, RemoteprofError where the process has started another
        program since.
        """
        if before is not None and before.memory != now.memory:
            raise RemoteprofError(
                f"process {self.pid} ({self.process}) has started another program meanwhile", "try again"
            )
        rows = self._heap(now, before) if self.kind.is_heap else self._events(now, before)
        found = [(stack, values, size) for stack, values, size in rows if any(values)]
        if not found:
            raise self._nothing(now, before)
        if any(abs(value) > _MOST for _, values, _ in found for value in values):
            raise RemoteprofError(
                f"process {self.pid} ({self.process}) has counts that no program has", "its memory may be damaged"
            )
        notes = [*now.notes]
        if now.rate <= 0:
            notes.append(f"{self.kind.off} now; what is shown was counted before")
        places = Places(self._known(found), short=short)
        samples = [
            Sample(tuple(places.locations(stack)), values, (Label("bytes", size),) if size else ())
            for stack, values, size in found
        ]
        target = f"{self.process} (pid {self.pid}), {now.version or 'Go'}"
        profile = Profile(
            list(self.kind.types),
            samples,
            places.mappings,
            self.kind.default,
            self.kind.period_type,
            now.rate if self.kind.is_heap else 1,
            now.time_ns,
            now.time_ns - before.time_ns if before is not None else 0,
            comments_of(command, target, notes),
        )
        profile.notes = notes
        set_flags(profile.mappings, places.all())
        return profile

    def _known(self, found: list[tuple[Stack, list[int], int]]) -> list[Module]:
        """The modules; read again where one was loaded since."""
        modules = self._modules.modules()
        addresses = {frame.address for stack, _, _ in found for frame in stack if frame.address}
        ranges = sorted((module.start, module.end) for module in modules)
        if not _all_within(sorted(addresses), ranges):
            self._modules.look()
            modules = self._modules.modules()
        return modules

    def _heap(self, now: Reading, before: Reading | None) -> Iterator[tuple[Stack, list[int], int]]:
        """Stack, values, and the size of one object."""
        for bucket, (stack, (objects, space, freed, freed_space)) in now.counted.items():
            size = space // objects if objects > 0 else 0
            used, used_space = objects - freed, space - freed_space
            if before is not None:
                # As godeltaprof: the difference of what was counted is scaled, not that of what was scaled.
                known = before.counted.get(bucket)
                objects -= known.values[0] if known is not None else 0
                if objects < 0:
                    continue
                space, used_space = objects * size, used * size
            values = [*scaled(objects, space, now.rate), *scaled(used, used_space, now.rate)]
            yield stack, values, size

    def _events(self, now: Reading, before: Reading | None) -> Iterator[tuple[Stack, list[int], int]]:
        known = before.counted if before is not None else {}
        for bucket, (stack, counted) in now.counted.items():
            values = _times(counted, now)
            if bucket in known:
                values = [value - old for value, old in zip(values, _times(known[bucket].values, now), strict=True)]
                if min(values) < 0:
                    continue
            yield stack, values, 0

    def _nothing(self, now: Reading, before: Reading | None) -> NothingToProfile:
        whose = f"in process {self.pid} ({self.process})"
        if now.rate <= 0:
            return NothingToProfile(f"{self.kind.off} {whose}", self.kind.on)
        if before is not None:
            seconds = (now.time_ns - before.time_ns) / 1e9
            return NothingToProfile(f"{self.kind.nothing} {whose} in these {seconds:.1f} s", "try a longer time")
        return NothingToProfile(f"{self.kind.nothing} {whose} yet", "try again when it has done some work")


def scaled(objects: int, space: int, rate: int) -> tuple[int, int]:
    """Objects and bytes that were allocated, for those that were sampled: an allocation of size S is sampled with the
    probability 1 - exp(-S / rate)."""
    if objects == 0 or space == 0:
        return 0, 0
    if rate <= 1:
        return objects, space
    missed = math.exp(-(space / objects) / rate)
    if missed >= 1:
        return 0, 0
    scale = 1 / (1 - missed)
    return int(objects * scale), int(space * scale)


def _times(values: tuple[int, int, int, int], reading: Reading) -> list[int]:
    """Events and nanoseconds."""
    count, ticks = values[:2]
    return [count * reading.factor, int(ticks / (max(reading.ticks, 1) / 1e9) * reading.factor)]


def _all_within(addresses: list[int], ranges: list[tuple[int, int]]) -> bool:
    at = 0
    for address in addresses:
        while at < len(ranges) and ranges[at][1] <= address:
            at += 1
        if at == len(ranges) or address < ranges[at][0]:
            return False
    return True
