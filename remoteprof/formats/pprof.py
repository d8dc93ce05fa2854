"""pprof: the profile as a protobuf message, written in parts so that memory follows distinct stacks only once."""

from __future__ import annotations

import gzip
from itertools import count

from remoteprof.formats import profile_pb2 as pb
from remoteprof.formats.pprof_reader import parse
from remoteprof.profile.model import Function, Location, Mapping, Profile, Sample, ValueType
from remoteprof.sinks import Stream

__all__ = ["Writer", "parse", "utf8", "write"]

PART = 2000
"""Messages that are serialized at once: concatenated parts of a message are the message."""


class Writer:
    """Numbers what a profile refers to, and writes it in parts."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._part = pb.Profile()
        self._pending = 0
        self._strings: dict[str, int] = {"": 0}
        self._texts = [""]
        self._empty = 0
        self._mappings: dict[int, int] = {}
        self._locations: dict[int, int] = {}
        self._kept: dict[int, Location] = {}
        self._numbers = count(1)
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
        self._kept = profile.locations
        for number, location in profile.locations.items():
            self._location(location, number)
            self._counted()
        for sample in profile.samples:
            self._sample(sample)
        self._flush()
        for start in range(0, len(self._texts), PART):
            self._part.string_table.extend(map(utf8, self._texts[start : start + PART]))
            self._flush()

    def _flush(self) -> None:
        self._stream.write(self._part.SerializeToString())
        self._part.Clear()
        self._pending = 0

    def _string(self, text: str) -> int:
        number = self._strings.get(text)
        if number is None:
            number = self._strings[text] = len(self._texts)
            self._texts.append(text)
        return number

    def _label_text(self, text: str) -> int:
        """A label that refers to the first "" has no text: one whose text is empty refers to a second one."""
        if text:
            return self._string(text)
        if not self._empty:
            self._empty = len(self._texts)
            self._texts.append("")
        return self._empty

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
                message.label.add(key=self._string(label.key), str=self._label_text(label.value))
            else:
                message.label.add(key=self._string(label.key), num=label.value, num_unit=self._string(label.unit))
        self._counted()

    def _counted(self) -> None:
        self._pending += 1
        if self._pending >= PART:
            self._flush()

    def _location(self, location: Location, number: int = 0) -> int:
        if not number:
            number = next(number for number in self._numbers if number not in self._kept)
        self._locations[id(location)] = number
        mapping = self._mapping(location.mapping) if location.mapping is not None else 0
        message = self._part.location.add(
            id=number, mapping_id=mapping, address=location.address, is_folded=location.folded
        )
        for line in location.lines:
            message.line.add(
                function_id=self._function(line.function),
                line=line.line,
                column=line.column,
            )
        return number

    def _function(self, function: Function) -> int:
        number = self._functions.get(id(function))
        if number is None:
            number = self._functions[id(function)] = len(self._functions) + 1
            self._part.function.add(
                id=number,
                name=self._string(function.name),
                system_name=self._string(function.system_name),
                filename=self._string(function.file),
                start_line=function.start_line,
            )
        return number


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
