"""The stacks of a profile as every format but pprof shows them: root first, of numbered frames with harmless names."""

from __future__ import annotations

import re
from typing import NamedTuple

from remoteprof.errors import RemoteprofError
from remoteprof.profile.model import EMPTY_STACK, Function, Location, Mapping, Profile, Sample, module_frame
from remoteprof.profile.table import column_of
from remoteprof.text import base_name, printable

MAX_NAME = 4096
"""Characters of a name that are kept: some C++ names are longer than any reader likes."""
MAX_TITLE = 200
"""Characters of a profile's title that are kept."""
UNNAMED = "[unnamed]"
"""What a function without a name is called."""

# Where a Python package begins in the path of its file.
_PACKAGE = re.compile(r".*/(?:site-packages|dist-packages|python\d+(?:\.\d+)?)/([^/]+)")


class Frame(NamedTuple):
    """A function as a stack shows it. `line` is where the function begins, 0 = unknown; `module` is the base name of
    the mapped file, or else the Python package or file, "" = none."""

    name: str
    file: str
    line: int
    module: str


class Frames:
    """Numbers the distinct frames of a profile, in order of first sight."""

    def __init__(self) -> None:
        self._numbers: dict[Frame, int] = {}
        self._names: list[str] = []
        # By id(): what has that address must live as long as its numbers are kept.
        self._locations: dict[int, tuple[int, ...]] = {}
        self._alive: list[Location] = []
        self._functions: dict[tuple[int, int], tuple[Function, Mapping | None, int]] = {}
        self._empty: tuple[int, ...] | None = None

    @property
    def known(self) -> list[Frame]:
        """Every frame met so far, by number."""
        return list(self._numbers)

    def stack(self, sample: Sample) -> tuple[int, ...]:
        """The numbers of the sample's frames, root first, inlined calls included; never empty."""
        known = self._locations
        stack: list[int] = []
        for location in reversed(sample.locations):
            stack += known.get(id(location)) or self.of(location)
        if stack:
            return tuple(stack)
        if self._empty is None:
            self._empty = (self._number(Frame(EMPTY_STACK, "", 0, "")),)
        return self._empty

    def of(self, location: Location) -> tuple[int, ...]:
        """The numbers of a location's frames, the innermost inlined call last."""
        frames = self._locations.get(id(location))
        if frames is None:
            mapping = location.mapping
            if location.lines:
                frames = tuple(self._function(line.function, mapping) for line in reversed(location.lines))
            else:
                # Not one frame an address: nobody knows where one function ends and the next begins.
                module = shown(base_name(mapping.file)) if mapping else ""
                frames = (self._number(Frame(shown(module_frame(mapping)), "", 0, module)),)
            self._locations[id(location)] = frames
            self._alive.append(location)
        return frames

    def name(self, number: int) -> str:
        """The name of a frame."""
        return self._names[number]

    def _function(self, function: Function, mapping: Mapping | None) -> int:
        key = (id(function), id(mapping))
        entry = self._functions.get(key)
        if entry is None:
            name = shown(function.name or function.system_name) or UNNAMED
            module = shown(_module(function, mapping))
            frame = Frame(name, shown(function.file), max(function.start_line, 0), module)
            entry = self._functions[key] = (function, mapping, self._number(frame))
        return entry[2]

    def _number(self, frame: Frame) -> int:
        number = self._numbers.setdefault(frame, len(self._numbers))
        if number == len(self._names):
            self._names.append(frame.name)
        return number


def shown(text: str) -> str:
    """`text` made harmless and cut to MAX_NAME characters."""
    text = printable(text[: MAX_NAME + 1])
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…"


def _module(function: Function, mapping: Mapping | None) -> str:
    if mapping is not None and mapping.file:
        return base_name(mapping.file)
    if function.name.startswith("[") or not function.file:
        return ""
    package = _PACKAGE.match(function.file)
    return package[1].removesuffix(".py") if package else base_name(function.file)


def title(profile: Profile) -> str:
    """What the profile is called: the command that made it, if it says so."""
    first = profile.comments[0] if profile.comments else ""
    return shown(first.removeprefix("command: ")[:MAX_TITLE]) or "remoteprof"


def default_column(profile: Profile) -> int:
    """The column that is shown first, and alone where a format has one alone: the default type, and the last where none
    is named, as pprof has it. Where it holds nothing but zeros, such as the CPU time of a program that slept, `wall`
    is shown if it holds more. Raises RemoteprofError for a profile without columns."""
    types = [kind.type for kind in profile.sample_types]
    if not types:
        raise RemoteprofError("the profile has no value types", "it shows nothing: record it again")
    column = column_of(profile)
    if "wall" in types and not any(sample.values[column] for sample in profile.samples):
        wall = types.index("wall")
        if any(sample.values[wall] for sample in profile.samples):
            return wall
    return column
