"""pprof, read: any profile, made by anyone. What is wrong with it is one error."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import eq
from typing import TypeVar

from google.protobuf.message import DecodeError

from remoteprof.errors import RemoteprofError
from remoteprof.formats import profile_pb2 as pb
from remoteprof.formats.wire import GZIP, PIECE, Malformed, fields, inflate, too_large
from remoteprof.profile.model import BASE, Function, Label, Line, Location, Mapping, Profile, Sample, ValueType

MAX_FILE = 512 << 20
"""Bytes of a file, compressed or not."""
MAX_MEMORY = 1 << 30
"""Bytes that a profile may take in memory, about."""

MAX_FIELD = 4 << 20
"""Bytes of one sample, location, function or mapping."""
MAX_HEAD = 1 << 20
"""Bytes of everything else, texts left out."""

# Bytes of memory that one of each takes, about.
_SAMPLE, _REFERENCE, _VALUE, _LABEL, _LOCATION, _LINE, _FUNCTION, _MAPPING, _STRING = (
    320, 8, 40, 120, 280, 80, 160, 240, 64,
)  # fmt: skip
_SAMPLES, _MAPPINGS, _LOCATIONS, _FUNCTIONS, _STRINGS = 2, 3, 4, 5, 6
_ZSTD = b"\x28\xb5\x2f\xfd"
_HEAD = (1, 7, 8, 9, 10, 11, 12, 13, 14, 15)

_Row = TypeVar("_Row", Mapping, Function, Location)


def parse(content: bytes, *, signed: bool = False) -> Profile:
    """The profile in `content`, compressed or not. Values below zero are an error unless `signed`, or unless a sample
    bears the label of a difference. Raises RemoteprofError."""
    try:
        if content.startswith(_ZSTD):
            raise RemoteprofError("compressed by Zstandard: no pprof profile is", "unpack it with zstd -d")
        if content.startswith(GZIP):
            content = inflate(content, MAX_FILE)
        if len(content) > MAX_FILE:
            too_large(MAX_FILE)
        with _uncollected():
            return _Reader(content, signed).profile()
    except Malformed as error:
        raise RemoteprofError(f"not a pprof profile: {error.message}", error.hint) from None
    except DecodeError:
        raise RemoteprofError("not a pprof profile") from None


@contextmanager
def _uncollected() -> Iterator[None]:
    """Nothing that is made here is garbage: to look for it again and again takes a fifth of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Reader:
    def __init__(self, content: bytes, signed: bool) -> None:
        self._fields = fields(content)
        self._signed = signed
        self._memory = 0
        self._strings: list[str] = []
        self._mappings: dict[int, Mapping] = {}
        self._functions: dict[int, Function] = {}
        self._locations: dict[int, Location] = {}
        self._labels: dict[tuple[int, int, int, int], Label] = {}
        self._met = 0
        self._counted = True

    def profile(self) -> Profile:
        for part in self._parts(_STRINGS):
            self._take(sum(_STRING + len(text) for text in part.string_table))
            self._strings += [text.decode(errors="replace") for text in part.string_table]
        if not self._strings:
            raise Malformed("it has no strings")
        if self._strings[0]:
            raise Malformed(f"its first string is {self._strings[0][:40]!r}, not empty")
        for part in self._parts(_MAPPINGS):
            self._read_mappings(part)
        for part in self._parts(_FUNCTIONS):
            self._read_functions(part)
        for part in self._parts(_LOCATIONS):
            self._read_locations(part)
        profile = self._head()
        for part in self._parts(_SAMPLES):
            self._read_samples(part, profile)
        if not self._is_counted():
            profile.locations = self._locations
        if not self._signed:
            _check_signs(profile)
        return profile

    def _parts(self, kind: int) -> Iterator[pb.Profile]:
        for piece in self._fields.pop(kind, ()):
            if kind != _STRINGS and len(piece) > 2 * PIECE + MAX_FIELD:
                raise Malformed(f"a part of it is larger than {MAX_FIELD >> 20} MiB")
            yield pb.Profile.FromString(bytes(piece))

    def _take(self, size: int) -> None:
        self._memory += size
        if self._memory > MAX_MEMORY:
            raise Malformed(f"it would take more than {MAX_MEMORY >> 20} MiB of memory")

    def _text(self, index: int) -> str:
        if not 0 <= index < len(self._strings):
            raise Malformed(f"it refers to string {index}, which is not in it")
        return self._strings[index]

    def _head(self) -> Profile:
        pieces = [piece for kind in _HEAD for piece in self._fields.pop(kind, ())]
        if sum(map(len, pieces)) > MAX_HEAD:
            raise Malformed(f"its head is larger than {MAX_HEAD >> 20} MiB")
        head = pb.Profile.FromString(b"".join(pieces))

        def kind(of: pb.ValueType) -> ValueType:
            return ValueType(self._text(of.type), self._text(of.unit))

        return Profile(
            sample_types=[kind(of) for of in head.sample_type],
            mappings=list(self._mappings.values()),
            default_sample_type=self._text(head.default_sample_type),
            period_type=kind(head.period_type),
            period=head.period,
            time_ns=head.time_nanos,
            duration_ns=head.duration_nanos,
            comments=[self._text(index) for index in head.comment],
            drop_frames=self._text(head.drop_frames),
            keep_frames=self._text(head.keep_frames),
            doc_url=self._text(head.doc_url),
        )

    def _read_mappings(self, part: pb.Profile) -> None:
        self._take(_MAPPING * len(part.mapping))
        for of in part.mapping:
            mapping = Mapping(
                of.memory_start,
                of.memory_limit,
                of.file_offset,
                self._text(of.filename),
                self._text(of.build_id),
                of.has_functions,
                of.has_filenames,
                of.has_line_numbers,
                of.has_inline_frames,
            )
            _enter(self._mappings, "mapping", of.id, mapping)

    def _read_functions(self, part: pb.Profile) -> None:
        self._take(_FUNCTION * len(part.function))
        for of in part.function:
            function = Function(self._text(of.name), self._text(of.system_name), self._text(of.filename), of.start_line)
            _enter(self._functions, "function", of.id, function)

    def _read_locations(self, part: pb.Profile) -> None:
        self._take(sum(_LOCATION + _LINE * len(of.line) for of in part.location))
        for of in part.location:
            lines = [
                Line(_referred(self._functions, "function", line.function_id), line.line, line.column)
                for line in of.line
            ]
            mapping = _referred(self._mappings, "mapping", of.mapping_id) if of.mapping_id else None
            _enter(self._locations, "location", of.id, Location(lines, mapping, of.address, of.is_folded))

    def _read_samples(self, part: pb.Profile, profile: Profile) -> None:
        # The loop that matters: a profile may have some 100,000 samples with 40 locations each.
        width, located = len(profile.sample_types), self._locations.__getitem__
        if not width and part.sample:
            raise Malformed("it has samples, and no sample types")
        size, last = 0, max(self._locations, default=0)
        for of in part.sample:
            values = list(of.value)
            if len(values) != width:
                raise Malformed(f"a sample with {len(values)} values for {width} types")
            # Once: what is read of a message's field is made anew each time.
            numbers = list(of.location_id)
            try:
                stack = tuple(map(located, numbers))
            except KeyError as error:
                raise Malformed(f"it refers to location {error}, which is not in it") from None
            if self._met < last and max(numbers, default=0) > self._met:
                self._meet(numbers)
            labels = tuple(map(self._label, of.label))
            size += len(stack) + len(labels)
            profile.samples.append(Sample(stack, values, labels))
        self._take(_REFERENCE * size + (_SAMPLE + _VALUE * width) * len(part.sample))

    def _meet(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number > self._met:
                self._counted &= number == self._met + 1
                self._met = number

    def _is_counted(self) -> bool:
        """Whether the locations are numbered as a writer of ours would number them."""
        count = len(self._locations)
        return self._counted and self._met == count and all(map(eq, self._locations, range(1, count + 1)))

    def _label(self, of: pb.Label) -> Label:
        key = (of.key, of.str, of.num, of.num_unit)
        label = self._labels.get(key)
        if label is None:
            self._take(_LABEL)
            name, unit = self._text(of.key), self._text(of.num_unit)
            label = Label(name, self._text(of.str)) if of.str else Label(name, of.num, unit)
            self._labels[key] = label
        return label


def _enter(table: dict[int, _Row], kind: str, number: int, row: _Row) -> None:
    if not number:
        raise Malformed(f"a {kind} with the id 0, which means none")
    if number in table:
        raise Malformed(f"two {kind}s with the id {number}")
    table[number] = row


def _referred(table: dict[int, _Row], kind: str, number: int) -> _Row:
    try:
        return table[number]
    except KeyError:
        raise Malformed(f"it refers to {kind} {number}, which is not in it") from None


def _check_signs(profile: Profile) -> None:
    worst = min((min(sample.values, default=0) for sample in profile.samples), default=0)
    if worst < 0 and not any(BASE in sample.labels for sample in profile.samples):
        raise RemoteprofError(
            f"a sample has the value {worst}, below zero",
            "if this is a difference, load it with signed=True (--signed)",
        )
