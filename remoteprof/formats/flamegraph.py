"""A flame graph as one HTML file that needs nothing else: the page of flamegraph_page/ with the profile in it.

The profile is base64 of a zlib stream of: the length of a JSON head (u32, then 4 bytes 0); the head, padded to 8 bytes;
and arrays, all little endian: the values, i64, a column after the other; for each row its stack and its label set, u32;
for each label set and key the value's number from 1, 0 = no such label, u32; for each stack how many frames it shares
with the one before, and its length, u32; and the frames beyond the shared ones, u32, root first. Stacks are sorted, so
that the page builds its tree in one pass.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import sys
import zlib
from array import array
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from remoteprof.errors import RemoteprofError
from remoteprof.formats.frames import Frames, default_column, shown, title
from remoteprof.formats.labels import facets
from remoteprof.profile.model import Label, Profile, untimed
from remoteprof.sinks import Stream

SCRIPTS = ("decode.js", "tree.js", "measure.js", "paint.js", "graph.js", "page.js")
LEVEL = 4
"""Of zlib: 2 % larger than the default one makes a large profile, at a fifth of the time."""
PART = 3 << 16
"""Bytes that are written at once; base64 wants threes."""


def write(profile: Profile, stream: Stream) -> None:
    """Writes the page. Raises RemoteprofError for a profile without value types, or with values beyond 64 bits."""
    style, script = _part("style.css"), _script()
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    fill = {
        "POLICY": policy,
        "TITLE": html.escape(f"Flame graph · {title(profile)}"),
        "STYLE": style,
        "SCRIPT": script,
    }
    content = encode(profile)
    page = _part("page.html")
    while page:
        text, found, page = page.partition("@")
        stream.write(text.encode())
        if not found:
            break
        name, _, page = page.partition("@")
        if name == "PROFILE":
            for start in range(0, len(content), PART):
                stream.write(base64.b64encode(content[start : start + PART]))
        else:
            stream.write(fill[name].encode())


@cache
def _part(name: str) -> str:
    return (files("remoteprof.formats") / "flamegraph_page" / name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    return '(() => {\n"use strict";\n' + "\n".join(map(_part, SCRIPTS)) + "})();\n"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def encode(profile: Profile) -> bytes:
    """The profile as the page reads it: the zlib stream that the head of this module describes."""
    default = default_column(profile)
    frames, rows = Frames(), Rows(len(profile.sample_types))
    for sample in profile.samples:
        rows.add(frames.stack(sample), sample.labels, sample.values)
    stacks = sorted(rows.stacks)
    shared, lengths, beyond = array("I"), array("I"), array("I")
    before: tuple[int, ...] = ()
    for stack in stacks:
        same = _common(before, stack)
        shared.append(same)
        lengths.append(len(stack))
        beyond.extend(stack[same:])
        before = stack
    # Stacks are numbered as they are sorted.
    place = array("I", bytes(4 * len(stacks)))
    for position, stack in enumerate(stacks):
        place[rows.stacks[stack]] = position
    keys = sorted({key for found in rows.facets for key, _ in found})
    numbers: dict[str, dict[str, int]] = {key: {} for key in keys}
    chosen = array("I")
    for found in rows.facets:
        values = dict(found)
        chosen.extend(
            numbers[key].setdefault(values[key], len(numbers[key]) + 1) if key in values else 0 for key in keys
        )
    strings: dict[str, int] = {}

    def number(text: str) -> int:
        return strings.setdefault(text, len(strings))

    head = {
        "types": [{"type": shown(kind.type), "unit": shown(kind.unit)} for kind in profile.sample_types],
        "defaultType": default,
        "comments": [shown(comment) for comment in profile.comments],
        "keys": [{"name": key, "values": list(numbers[key])} for key in keys],
        "frames": [
            (number(frame.name), number(frame.file), frame.line, number(frame.module)) for frame in frames.known
        ],
        "strings": list(strings),
        "counts": {
            "rows": len(rows.row_stack),
            "stacks": len(stacks),
            "sets": len(rows.facets),
            "newFrames": len(beyond),
        },
    }
    row_stack = array("I", (place[stack] for stack in rows.row_stack))
    arrays = [*rows.columns(), row_stack, array("I", rows.row_set), chosen, shared, lengths, beyond]
    return _deflated(head, arrays)


class Rows:
    """The samples of a profile, added up by stack and label set, each numbered in order of first sight."""

    def __init__(self, columns: int) -> None:
        self.stacks: dict[tuple[int, ...], int] = {}
        self.facets: dict[tuple[tuple[str, str], ...], int] = {}
        self.row_stack: list[int] = []
        self.row_set: list[int] = []
        self._values: list[list[int]] = []
        self._columns = columns
        self._sets: dict[tuple[Label, ...], int] = {}
        self._rows: dict[tuple[int, int], int] = {}

    def add(self, stack: tuple[int, ...], labels: tuple[Label, ...], values: list[int]) -> None:
        """Adds a sample."""
        stack_number = self.stacks.setdefault(stack, len(self.stacks))
        labels = untimed(labels)
        set_number = self._sets.get(labels)
        if set_number is None:
            set_number = self._sets[labels] = self.facets.setdefault(facets(labels), len(self.facets))
        row = self._rows.setdefault((stack_number, set_number), len(self._rows))
        if row < len(self._values):
            self._values[row] = [sum(pair) for pair in zip(self._values[row], values, strict=True)]
        else:
            self._values.append(values)
            self.row_stack.append(stack_number)
            self.row_set.append(set_number)

    def columns(self) -> Iterator[array[int]]:
        """The values, column by column. Raises RemoteprofError for one that 64 bits do not hold."""
        try:
            for column in range(self._columns):
                yield array("q", (values[column] for values in self._values))
        except OverflowError:
            raise RemoteprofError("a value of the profile is beyond 64 bits") from None


def _common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many items two stacks begin with alike."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(index for index, (mine, its) in enumerate(zip(one, other, strict=False)) if mine != its)


def _deflated(head: dict[str, Any], arrays: list[array[int]]) -> bytes:
    text = json.dumps(head, separators=(",", ":")).encode()
    packer = zlib.compressobj(LEVEL)
    parts = [packer.compress(len(text).to_bytes(8, "little") + text + bytes(-len(text) % 8))]
    for numbers in arrays:
        if sys.byteorder == "big":
            numbers.byteswap()
        parts.append(packer.compress(numbers.tobytes()))
    return b"".join([*parts, packer.flush()])
