"""pprof: the profile as a protobuf message, written in parts so that memory follows distinct stacks only once."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from google.protobuf.message import DecodeError

from remoteprof.errors import RemoteprofError
from remoteprof.formats import profile_pb2 as pb
from remoteprof.profile.model import Function, Label, Line, Location, Mapping, Profile, Sample, ValueType
from remoteprof.sinks import Stream

PART = 2000
"""Messages that are serialized at once: concatenated parts of a message are the message."""
MAX_FILE = 512 << 20
"""Bytes of a file that load() accepts, compressed or not."""
MAX_INT64 = (1 << 63) - 1


class Writer:
    """Numbers what a profile refers to, and writes it in parts."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._part = pb.Profile()
        self._pending = 0
        self._strings: dict[str, int] = {"": 0}
        self._mappings: dict[int, int] = {}
        self._locations: dict[int, int] = {}
        self._functions: dict[int, int] = {}

    def write(self, profile: Profile) -> None:
        """Writes all of `profile`."""
        part = self._part
        part.sample_type.extend(self._value_type(kind) for kind in profile.sample_types)
        if profile.period_type.type:
            part.period_type.CopyFrom(self._value_type(profile.period_type))
        part.period = profile.period
        part.time_nanos = profile.time_ns
        part.duration_nanos = profile.duration_ns
        part.default_sample_type = self._string(profile.default_sample_type)
        part.comment.extend(self._string(comment) for comment in profile.comments)
        part.drop_frames = self._string(profile.drop_frames)
        part.keep_frames = self._string(profile.keep_frames)
        part.doc_url = self._string(profile.doc_url)
        for mapping in profile.mappings:
            self._mapping(mapping)
        for sample in profile.samples:
            self._sample(sample)
        self._flush()
        strings = list(self._strings)
        for start in range(0, len(strings), PART):
            self._part.string_table.extend(map(utf8, strings[start : start + PART]))
            self._flush()

    def _flush(self) -> None:
        self._stream.write(self._part.SerializeToString())
        self._part.Clear()
        self._pending = 0

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _value_type(self, kind: ValueType) -> pb.ValueType:
        return pb.ValueType(type=self._string(kind.type), unit=self._string(kind.unit))

    def _mapping(self, mapping: Mapping) -> int:
        number = self._mappings.get(id(mapping))
        if number is None:
            number = self._mappings[id(mapping)] = len(self._mappings) + 1
            self._part.mapping.add(
                id=number,
                memory_start=mapping.start,
                memory_limit=mapping.limit,
                file_offset=mapping.offset,
                filename=self._string(mapping.file),
                build_id=self._string(mapping.build_id),
                has_functions=mapping.has_functions,
                has_filenames=mapping.has_filenames,
                has_line_numbers=mapping.has_line_numbers,
                has_inline_frames=mapping.has_inline_frames,
            )
        return number

    def _sample(self, sample: Sample) -> None:
        known = self._locations
        message = self._part.sample.add(
            location_id=[known.get(id(location)) or self._location(location) for location in sample.locations],
            value=sample.values,
        )
        for label in sample.labels:
            if isinstance(label.value, str):
                message.label.add(key=self._string(label.key), str=self._string(label.value))
            else:
                message.label.add(key=self._string(label.key), num=label.value, num_unit=self._string(label.unit))
        self._pending += 1
        if self._pending >= PART:
            self._flush()

    def _location(self, location: Location) -> int:
        number = self._locations[id(location)] = len(self._locations) + 1
        mapping = self._mapping(location.mapping) if location.mapping is not None else 0
        message = self._part.location.add(id=number, mapping_id=mapping, address=location.address)
        for line in location.lines:
            message.line.add(function_id=self._function(line.function), line=max(line.line, 0), column=line.column)
        return number

    def _function(self, function: Function) -> int:
        number = self._functions.get(id(function))
        if number is None:
            number = self._functions[id(function)] = len(self._functions) + 1
            self._part.function.add(
                id=number,
                name=self._string(function.name),
                system_name=self._string(_system_name(function)),
                filename=self._string(function.file),
                start_line=function.start_line,
            )
        return number


def _system_name(function: Function) -> str:
    """pprof takes a name with `<` for C++ and drops what is in the brackets, unless system_name shows that the name was
    made from another one. Python's `<module>` would be lost."""
    if "<" in function.name and function.name == function.system_name:
        return f"{function.file}:{function.name}"
    return function.system_name


def utf8(text: str) -> bytes:
    """Valid UTF-8: names come from foreign memory, and a reader may refuse the whole file for one bad byte."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogateescape" if _escaped(text) else "replace").decode(errors="replace").encode()


def _escaped(text: str) -> bool:
    return all(0xDC80 <= ord(character) <= 0xDCFF for character in text if 0xD800 <= ord(character) <= 0xDFFF)


def write(profile: Profile, stream: Stream, compress: bool = True) -> None:
    """Writes `profile` to `stream`; equal profiles give equal bytes."""
    if not compress:
        Writer(stream).write(profile)
        return
    # Level 1 is within a tenth of the best size on profiles, at a quarter of its time.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=stream, mtime=0) as compressed:
        Writer(compressed).write(profile)


def load(path: str | Path) -> Profile:
    """Reads a profile, compressed or not. Raises RemoteprofError where the file is none, or larger than MAX_FILE."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise RemoteprofError(f"cannot read {path}: {error.strerror}") from None
    try:
        return parse(content)
    except RemoteprofError as error:
        raise RemoteprofError(f"{path}: {error.message}", error.hint) from None


def parse(content: bytes) -> Profile:
    """The profile in `content`, compressed or not. Raises RemoteprofError."""
    bad = "not a pprof profile"
    if content[:2] == b"\x1f\x8b":
        inflate = zlib.decompressobj(wbits=31)
        try:
            content = inflate.decompress(content, MAX_FILE + 1)
        except zlib.error as error:
            raise RemoteprofError(f"{bad}: {error}") from None
        if not inflate.eof and len(content) <= MAX_FILE:
            raise RemoteprofError(f"{bad}: the compressed data ends too early")
    if len(content) > MAX_FILE:
        raise RemoteprofError(f"larger than {MAX_FILE >> 20} MiB")
    message = pb.Profile()
    try:
        message.ParseFromString(content)
        return _from_message(message)
    except DecodeError:
        raise RemoteprofError(bad) from None
    except (KeyError, IndexError) as error:
        raise RemoteprofError(f"{bad}: it refers to {error}, which is not in it") from None


def _from_message(message: pb.Profile) -> Profile:
    strings = [text.decode(errors="replace") for text in message.string_table] or [""]

    def text(index: int) -> str:
        if not 0 <= index < len(strings):
            raise KeyError(f"string {index}")
        return strings[index]

    def kind(of: pb.ValueType) -> ValueType:
        return ValueType(text(of.type), text(of.unit))

    def label(of: pb.Label) -> Label:
        return Label(text(of.key), text(of.str) if of.str else of.num, text(of.num_unit))

    mappings = {
        of.id: Mapping(
            of.memory_start,
            of.memory_limit,
            of.file_offset,
            text(of.filename),
            text(of.build_id),
            of.has_functions,
            of.has_filenames,
            of.has_line_numbers,
            of.has_inline_frames,
        )
        for of in message.mapping
    }
    functions = {
        of.id: Function(text(of.name), text(of.system_name), text(of.filename), of.start_line)
        for of in message.function
    }
    locations = {
        of.id: Location(
            [Line(functions[line.function_id], line.line, line.column) for line in of.line],
            mappings[of.mapping_id] if of.mapping_id else None,
            of.address,
        )
        for of in message.location
    }
    width = len(message.sample_type)
    samples = []
    for of in message.sample:
        if len(of.value) != width:
            raise RemoteprofError(f"not a pprof profile: a sample with {len(of.value)} values for {width} types")
        samples.append(
            Sample(tuple(locations[number] for number in of.location_id), list(of.value), tuple(map(label, of.label)))
        )
    return Profile(
        sample_types=[kind(of) for of in message.sample_type],
        samples=samples,
        mappings=list(mappings.values()),
        default_sample_type=text(message.default_sample_type),
        period_type=kind(message.period_type),
        period=message.period,
        time_ns=message.time_nanos,
        duration_ns=message.duration_nanos,
        comments=[text(index) for index in message.comment],
        drop_frames=text(message.drop_frames),
        keep_frames=text(message.keep_frames),
        doc_url=text(message.doc_url),
    )
