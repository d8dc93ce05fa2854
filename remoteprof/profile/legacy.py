"""The CPU profile that gperftools writes → Profile.

The layout (gperftools, docs/cpuprofile-fileformat.html): words of the writing machine, 32 or 64 bits, either byte
order. A header 0, 3, 0, the period in microseconds, 0. Then records: a count, a number n, n addresses, the leaf first;
the leaf is where the program was, each other one a return address. The end is 0, 1, 0. Behind it stands the text of
/proc/PID/maps, or nothing.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from remoteprof.errors import RemoteprofError
from remoteprof.modules import Line as MapsLine
from remoteprof.modules import kept, parse_lines
from remoteprof.profile.model import Function, Line, Location, Mapping, Profile, Sample, ValueType
from remoteprof.profile.ranges import Ranges

MAX_INT64 = (1 << 63) - 1
MAX_MAPS = 16 << 20
"""Bytes of maps text that are read; a line has some hundred."""
MAX_MODULES = 1 << 16
"""Mappings that are kept; the kernel allows a process some 65,000 ranges of memory."""
MAX_DISTINCT = 1 << 20
"""Distinct stacks of one profile, and distinct addresses."""
HEADER = (0, 3, 0)

_HEAD_WORDS = 5
_KINDS = tuple((size, order) for size in (8, 4) for order in ("little", "big"))
_TITLE = "MAPPED_LIBRARIES:"


class Name(NamedTuple):
    """One function at an address; numbers are 0 and `file` is "" where unknown."""

    name: str
    system_name: str
    file: str
    line: int
    column: int
    start_line: int


Names = Callable[[Mapping, Sequence[int]], Sequence[Sequence[Name]]]
"""A mapping and addresses in it → the functions at each, the innermost inlined call first; none: unknown."""


def is_legacy(content: bytes) -> bool:
    """Whether `content` begins like a profile of gperftools."""
    return _kind(content) is not None


def parse(content: bytes, time_ns: int = 0, names: Names | None = None) -> Profile:
    """The profile in `content`: `samples/count` and `cpu/nanoseconds`, equal stacks added up in order of first sight.

    time_ns: Unix time of the start, which the file does not tell. names: what finds the functions of a mapping; without
    it locations have addresses only. What should be told of the maps text stands in the notes.

    Raises RemoteprofError: `truncated profile`, `malformed profile`, `profile overflow`.
    """
    kind = _kind(content)
    if kind is None:
        raise RemoteprofError("malformed profile: not a CPU profile of gperftools")
    size, order = kind
    words = array("Q" if size == 8 else "I")
    words.frombytes(memoryview(content)[: len(content) // size * size])
    if order != sys.byteorder:
        words.byteswap()
    if len(words) < _HEAD_WORDS:
        raise RemoteprofError(f"truncated profile: {len(words)} words, fewer than a header has")
    period = words[3] * 1000
    if not 0 < period <= MAX_INT64:
        raise RemoteprofError(f"malformed profile: a period of {words[3]} µs")
    counts, end = _counts(words, period)
    profile = Profile(
        sample_types=[ValueType("samples", "count"), ValueType("cpu", "nanoseconds")],
        period_type=ValueType("cpu", "nanoseconds"),
        period=period,
        time_ns=time_ns,
    )
    profile.mappings = _mappings(content[end * size : end * size + MAX_MAPS + 1], profile.notes)
    _samples(profile, words, counts)
    if names is not None:
        name(profile, names)
    return profile


def _kind(content: bytes) -> tuple[int, str] | None:
    for size, order in _KINDS:
        begin = b"".join(word.to_bytes(size, "little" if order == "little" else "big") for word in HEADER)
        if content.startswith(begin):
            return size, order
    return None


def _counts(words: array[int], period: int) -> tuple[dict[bytes, int], int]:
    """How often each stack was met, and the word behind the end mark."""
    counts: dict[bytes, int] = {}
    view = memoryview(words)
    position, record, total = _HEAD_WORDS, 0, 0
    while True:
        left = len(words) - position
        if left < 2 or words[position + 1] > left - 2:
            raise RemoteprofError(f"truncated profile: record {record} at word {position}")
        count, depth = words[position], words[position + 1]
        begin, position = position + 2, position + 2 + depth
        if (count, depth) == (0, 1) and words[begin] == 0:
            return counts, position
        total += count
        if total * period > MAX_INT64:
            raise RemoteprofError(
                f"profile overflow: record {record} at word {begin - 2}: the sum does not fit into 64 bits"
            )
        key = view[begin:position].tobytes()
        counts[key] = counts.get(key, 0) + count
        if len(counts) > MAX_DISTINCT:
            raise RemoteprofError(f"more than {MAX_DISTINCT} distinct stacks: not a program's profile")
        record += 1


def _mappings(text: bytes, notes: list[str]) -> list[Mapping]:
    # Behind whole words stands text; bytes that are no UTF-8 are kept as they are in names.
    shown = text.decode(errors="surrogateescape").lstrip("\n")
    title, _, rest = shown.partition("\n")
    if title.strip() == _TITLE:
        shown = rest
    lines, bad = ([], 0) if len(text) > MAX_MAPS else parse_lines(shown)
    found = [line for line in lines if kept(line)]
    if bad:
        notes.append(f"{bad} lines of the profile's memory map are none and were skipped")
    if not found or len(found) > MAX_MODULES:
        notes.append("the profile has no usable memory map: addresses have no module")
        return [Mapping()]
    return [
        Mapping(line.start, line.end, line.offset, line.path.removesuffix(" (deleted)"), _build_id(line))
        for line in found
    ]


def _build_id(line: MapsLine) -> str:
    """The build id of the mapped file where it is still here, and the same."""
    from remoteprof.modules.elf import BadElf, build_id_of_file

    if not line.path.startswith("/"):
        return ""
    try:
        if line.device == "00:00":  # gperftools writes no device
            status = Path(line.path).stat()
            line = line._replace(device=f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}")
        return build_id_of_file(line.path, line) or ""
    except (OSError, ValueError, BadElf):
        return ""


def _samples(profile: Profile, words: array[int], counts: dict[bytes, int]) -> None:
    locations: dict[int, Location] = {}
    mappings = profile.mappings
    fake = mappings[0] if not mappings[0].file else None
    ranges = Ranges((mapping.start, mapping.limit) for mapping in mappings)
    for key, count in counts.items():
        places = []
        for depth, word in enumerate(array(words.typecode, key)):
            address = max(word - 1, 0) if depth else word
            location = locations.get(address)
            if location is None:
                number = ranges.find(address)
                mapping = fake if number is None else mappings[number]
                location = locations[address] = Location([], mapping, address)
                if len(locations) > MAX_DISTINCT:
                    raise RemoteprofError(f"more than {MAX_DISTINCT} distinct addresses: not a program's profile")
            places.append(location)
        profile.samples.append(Sample(tuple(places), [count, count * profile.period]))


def name(profile: Profile, names: Names) -> None:
    """Gives every location its lines that has none, each distinct address being asked for once. A mapping that says of
    itself that it has functions was looked at by whoever made the profile, and stays as it is."""
    sampled: dict[int, dict[int, Location]] = {}
    inside: dict[int, dict[int, dict[int, Location]]] = {}
    for sample in profile.samples:
        for location in sample.locations:
            mapping = location.mapping
            if mapping is not None:
                sampled.setdefault(id(mapping), {})[id(location)] = location
            if mapping is not None and not mapping.has_functions and not location.lines:
                # Several locations of one address are one that was written twice: all of them are named.
                inside.setdefault(id(mapping), {}).setdefault(location.address, {})[id(location)] = location
    functions: dict[tuple[str, str, str, int], Function] = {}
    for mapping in profile.mappings:
        asked = inside.get(id(mapping), {})
        if not asked:
            continue
        found = names(mapping, list(asked))
        for same, chain in zip(asked.values(), found, strict=True):
            for one in chain:
                key = (one.name, one.system_name, one.file, one.start_line)
                function = functions.setdefault(key, Function(*key))
                for location in same.values():
                    location.lines.append(Line(function, one.line, one.column))
        places = sampled[id(mapping)].values()
        lines = [location.lines for location in places]
        mapping.has_functions = all(lines)
        mapping.has_filenames = all(of and all(line.function.file for line in of) for of in lines)
        mapping.has_line_numbers = all(of and all(line.line for line in of) for of in lines)
        mapping.has_inline_frames = mapping.has_functions and any(len(of) > 1 for of in lines)
