"""Profiles as plain values: read from a pprof file with protobuf alone, not through remoteprof's own model."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remoteprof.formats import profile_pb2


@dataclass(frozen=True)
class Frame:
    name: str
    qualified: str
    file: str
    line: int
    start_line: int
    address: int


@dataclass
class Sample:
    """One row; frames root first."""

    frames: list[Frame]
    values: dict[str, int]
    labels: dict[str, str | int]

    def python(self) -> list[Frame]:
        """The Python frames: those without an address that are no label such as `[syscall: read]`."""
        return [frame for frame in self.frames if frame.address == 0 and not frame.name.startswith("[")]

    def names(self) -> list[str]:
        return [frame.name for frame in self.frames]


@dataclass
class Profile:
    samples: list[Sample]
    types: list[tuple[str, str]]
    period: int
    period_type: tuple[str, str]
    default_type: str
    comments: list[str]
    duration_ns: int
    time_ns: int
    mappings: list[str]
    message: Any

    def total(self, value: str) -> int:
        return sum(sample.values[value] for sample in self.samples)

    def with_function(self, name: str, value: str) -> int:
        """The sum over the samples that have this function anywhere in their stack."""
        return sum(sample.values[value] for sample in self.samples if name in sample.names())

    def functions(self) -> set[str]:
        return {frame.name for sample in self.samples for frame in sample.frames}


def load(path: Path) -> Profile:
    return loads(path.read_bytes())


def loads(raw: bytes) -> Profile:
    message = profile_pb2.Profile()
    message.ParseFromString(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    strings = [text.decode() for text in message.string_table]
    functions = {function.id: function for function in message.function}
    locations: dict[int, list[Frame]] = {}
    for location in message.location:
        frames = []
        for line in location.line:
            function = functions[line.function_id]
            qualified = strings[function.name]
            frames.append(
                Frame(
                    name=qualified.rpartition(".")[2],
                    qualified=qualified,
                    file=strings[function.filename],
                    line=line.line,
                    start_line=function.start_line,
                    address=location.address,
                )
            )
        if not frames:
            frames.append(Frame(hex(location.address), "", "", 0, 0, location.address))
        locations[location.id] = frames
    types = [(strings[kind.type], strings[kind.unit]) for kind in message.sample_type]
    samples = []
    for row in message.sample:
        leaf_first = [frame for ident in row.location_id for frame in locations[ident]]
        assert len(row.value) == len(types), "a value for each sample type"
        samples.append(
            Sample(
                frames=leaf_first[::-1],
                values={kind: value for (kind, _), value in zip(types, row.value, strict=True)},
                labels={strings[label.key]: strings[label.str] if label.str else label.num for label in row.label},
            )
        )
    return Profile(
        samples=samples,
        types=types,
        period=message.period,
        period_type=(strings[message.period_type.type], strings[message.period_type.unit]),
        default_type=strings[message.default_sample_type],
        comments=[strings[index] for index in message.comment],
        duration_ns=message.duration_nanos,
        time_ns=message.time_nanos,
        mappings=[strings[mapping.filename] for mapping in message.mapping],
        message=message,
    )
