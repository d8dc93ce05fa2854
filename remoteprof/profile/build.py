"""Batches → Profile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Mapping as MappingType
from itertools import pairwise
from typing import TYPE_CHECKING

from remoteprof.profile.model import (
    EMPTY_STACK,
    TIME,
    Function,
    Label,
    Line,
    Location,
    Mapping,
    Profile,
    Sample,
    ValueType,
)
from remoteprof.profile.native import NativeFrames

if TYPE_CHECKING:
    from remoteprof._native import Batch
    from remoteprof.modules import Module
    from remoteprof.symbols import Line as NamedLine
    from remoteprof.symbols import Names

COUNT = ValueType("samples", "count")
CPU = ValueType("cpu", "nanoseconds")
WALL = ValueType("wall", "nanoseconds")
GIL = ValueType("gil", "nanoseconds")


def build(
    batches: Iterable[Batch],
    rate: float,
    modules: MappingType[int, list[Module]] | None = None,
    names: Sequence[Names] = (),
    native_all: bool = False,
) -> Profile:
    """The profile of `batches`, of one process or several, of one window or several, sampled at `rate` Hz.

    `modules`: what is mapped in each process (by pid), the main binary first. `names`: the functions at the native
    frames of each batch. `native_all`: also those that only lead from one Python function to the next. Samples of equal
    stack and labels are added up, in order of first sight.
    """
    builder = Builder(list(batches), rate, modules or {})
    builder.names = list(names)
    builder.native_all = native_all
    return builder.build()


class Builder:
    """One profile in the making. Functions, locations and samples are kept once each."""

    def __init__(self, batches: list[Batch], rate: float, modules: MappingType[int, list[Module]]) -> None:
        self._batches = batches
        self._modules = modules
        self.names: list[Names] = []
        self.native_all = False
        self._functions: dict[tuple[str, str, str, int], Function] = {}
        self._locations: dict[tuple[object, ...], Location] = {}
        self._samples: dict[tuple[tuple[int, ...], tuple[Label, ...]], Sample] = {}
        self._mappings: dict[tuple[object, ...], Mapping] = {}
        self._with_gil = any(batch.runtime.startswith("CPython") for batch in batches)
        self._with_process = len({batch.pid for batch in batches}) > 1
        self._profile = Profile(
            sample_types=[COUNT, CPU, WALL] + [GIL] * self._with_gil,
            default_sample_type="cpu",
            period_type=WALL,
            period=round(1e9 / rate),
        )

    def build(self) -> Profile:
        """The profile of all batches."""
        profile = self._profile
        pids = list(dict.fromkeys([*self._modules, *(batch.pid for batch in self._batches)]))
        for pid in pids:
            for module in self._modules.get(pid, ()):
                self._mapping(pid, module.start, module.end, module.offset, module.path, module.build_id)
        for index, batch in enumerate(self._batches):
            self._add(batch, self.names[index] if index < len(self.names) else {})
        profile.samples = list(self._samples.values())
        # What takes every address where nothing is known to be mapped.
        profile.mappings = list(self._mappings.values()) or [Mapping()]
        set_flags(profile.mappings, self._locations.values())
        starts = [batch.start_ns for batch in self._batches if batch.start_ns]
        if starts:
            profile.time_ns = min(starts)
            ends = [batch.start_ns + batch.duration_ns for batch in self._batches if batch.start_ns]
            profile.duration_ns = max(ends) - profile.time_ns
        profile.notes = list(dict.fromkeys(note for batch in self._batches for note in batch.notes))
        return profile

    def _add(self, batch: Batch, names: Names) -> None:
        native = NativeFrames(batch, names, self.native_all)
        locations, shown = self._batch_locations(batch, native)
        starts = memoryview(batch.stack_starts).cast("I").tolist()
        frames = memoryview(batch.stack_frames).cast("I").tolist()
        empty = (self._location(EMPTY_STACK, EMPTY_STACK, "", 0, 0, 0, None),)
        stacks = []
        for start, end in pairwise(starts):
            stack = frames[start:end]
            if native.merged(stack):
                stacks.append(tuple([place for frame in stack if (place := shown[frame]) is not None]) or empty)
            else:
                stacks.append(tuple([locations[frame] for frame in stack]) or empty)
        # A location's identity stands for it in keys: dataclasses of equal content are one object here.
        keys = [tuple(map(id, stack)) for stack in stacks]
        columns = {name: memoryview(column) for name, column in batch.rows.items()}
        thread, stack_column, state, label_column = (
            columns[name].cast("I").tolist() for name in ("thread", "stack", "state", "labels")
        )
        times = columns["time"].cast("Q").tolist()
        kinds = ["samples", "cpu", "wall"] + ["gil"] * self._with_gil
        values = zip(*(columns[kind].cast("Q").tolist() for kind in kinds), strict=True)
        # Each of these is made anew when it is asked for.
        threads, states = batch.threads, batch.states
        own_labels = [tuple(Label(key, value) for key, value in of) for of in batch.labels]
        labels: dict[tuple[int, int, int], tuple[Label, ...]] = {}
        samples = self._samples
        rows = zip(thread, stack_column, state, label_column, times, values, strict=True)
        for thread_index, stack_index, state_index, label_index, time, row in rows:
            of_row = labels.get((thread_index, state_index, label_index))
            if of_row is None:
                tid, name = threads[thread_index]
                ours = self._labels(batch, tid, name, states[state_index])
                of_row = tuple(sorted(ours + own_labels[label_index], key=_key_of))
                labels[thread_index, state_index, label_index] = of_row
            if time:
                of_row = (*of_row, Label(TIME[0], time, TIME[1]))
            key = (keys[stack_index], of_row)
            sample = samples.get(key)
            if sample is None:
                samples[key] = Sample(stacks[stack_index], list(row), of_row)
            else:
                sample.values = [before + new for before, new in zip(sample.values, row, strict=True)]

    def _labels(self, batch: Batch, tid: int, name: str, state: str) -> tuple[Label, ...]:
        labels = [Label("pid", batch.pid)]
        if self._with_process and batch.process:
            labels.append(Label("process", batch.process))
        if state:
            labels.append(Label("state", state))
        labels.append(Label("thread_id", tid))
        if name:
            labels.append(Label("thread_name", name))
        return tuple(labels)

    def _batch_locations(self, batch: Batch, native: NativeFrames) -> tuple[list[Location], list[Location | None]]:
        """The location of each frame, and the same for stacks in which some are left out."""
        mappings: list[Mapping | None] = [
            self._mapping(
                batch.pid, mapping.start, mapping.end, mapping.offset, mapping.path.removesuffix(" (deleted)")
            )
            for mapping in batch.mappings
        ]
        locations: list[Location] = []
        shown: list[Location | None] = []
        for index, (kind, name, file, line, start_line, address, mapping_index) in enumerate(batch.frames):
            if kind in ("native", "loop"):
                mapping = mappings[mapping_index] if mapping_index >= 0 else None
                lines, left = native.lines(index), native.shown(index)
                place = self._place(address, mapping, lines)
                locations.append(place)
                shown.append(place if left == lines else None if left is None else self._place(address, mapping, left))
            else:
                place = self._location(name, name, file, line, start_line, 0, None)
                locations.append(place)
                shown.append(place)
        return locations, shown

    def _place(self, address: int, mapping: Mapping | None, lines: list[NamedLine]) -> Location:
        key = (address, id(mapping) if mapping else 0, tuple(lines))
        location = self._locations.get(key)
        if location is None:
            of_lines = [
                Line(self._function(line.name, line.system_name, line.file, line.start_line), line.line, line.column)
                for line in lines
            ]
            location = self._locations[key] = Location(of_lines, mapping, address)
        return location

    def _mapping(self, pid: int, start: int, end: int, offset: int, path: str, build_id: str = "") -> Mapping | None:
        if not path:
            return None
        # Mappings of two processes are never shared: the same range holds other things there.
        key = (pid, start, end, offset, path)
        mapping = self._mappings.get(key)
        if mapping is None:
            mapping = self._mappings[key] = Mapping(start, end, offset, path, build_id)
        return mapping

    def _location(
        self, name: str, system_name: str, file: str, line: int, start_line: int, address: int, mapping: Mapping | None
    ) -> Location:
        line = max(line, 0)
        key = (name, system_name, file, start_line, line, address, id(mapping) if mapping else 0)
        location = self._locations.get(key)
        if location is None:
            lines = [Line(self._function(name, system_name, file, start_line), line)] if name else []
            location = self._locations[key] = Location(lines, mapping, address)
        return location

    def _function(self, name: str, system_name: str, file: str, start_line: int) -> Function:
        if "<" in name and name == system_name:
            # pprof takes such a name for C++ and drops what is in the brackets, unless system_name shows that it was
            # made from another one: Python's `<module>` would be lost.
            system_name = f"{file}:{name}"
        key = (name, system_name, file, max(start_line, 0))
        function = self._functions.get(key)
        if function is None:
            function = self._functions[key] = Function(*key)
        return function


def _key_of(label: Label) -> str:
    return label.key


def set_flags(mappings: Iterable[Mapping], locations: Iterable[Location]) -> None:
    """Sets what is known of each mapping. True tells pprof not to look the fact up itself, so it must hold for every
    address of the mapping."""
    sampled: dict[int, list[Location]] = {}
    for location in locations:
        if location.mapping is not None:
            sampled.setdefault(id(location.mapping), []).append(location)
    for mapping in mappings:
        places = sampled.get(id(mapping))
        if not places:
            continue
        lines = [location.lines for location in places]
        mapping.has_functions = all(lines)
        mapping.has_filenames = all(of and all(line.function.file for line in of) for of in lines)
        mapping.has_line_numbers = all(of and all(line.line for line in of) for of in lines)
        mapping.has_inline_frames = mapping.has_functions and any(len(of) > 1 for of in lines)
