"""The tables that the threads of a gecko profile share: stacks, frames, functions, resources, libraries, strings."""

from __future__ import annotations

from typing import Any

from remoteprof.formats.frames import Frames, shown
from remoteprof.profile.model import Location, Mapping, Sample

CATEGORIES = (("Other", "grey"), ("Python", "yellow"), ("Native", "blue"), ("Waiting", "transparent"))
_OTHER, _PYTHON, _NATIVE, _WAITING = range(len(CATEGORIES))
_UNKNOWN, _LIBRARY = 0, 1  # kinds of resources

# A frame: its function, a number of Frames; its line, 0 = unknown; its library, -1 = none.
_Frame = tuple[int, int, int]


class Tables:
    """Numbers everything that the samples of a profile refer to."""

    def __init__(self) -> None:
        self.libs: list[dict[str, Any]] = []
        self._names = Frames()
        self._frames: dict[_Frame, int] = {}
        self._categories: list[int] = []
        self._stacks: dict[tuple[int, int], int] = {}
        self._locations: dict[int, tuple[Location, list[int]]] = {}
        self._lib_of: dict[int, tuple[Mapping, int]] = {}
        self._lib_numbers: dict[tuple[str, str], int] = {}

    def stack(self, sample: Sample) -> int:
        """The number of the sample's stack."""
        above = -1
        if not sample.locations:
            [name] = self._names.stack(sample)
            return self._below(above, self._frame((name, 0, -1), _OTHER))
        for location in reversed(sample.locations):
            entry = self._locations.get(id(location))
            for frame in entry[1] if entry is not None else self._location(location):
                above = self._below(above, frame)
        return above

    def _below(self, above: int, frame: int) -> int:
        return self._stacks.setdefault((above, frame), len(self._stacks))

    def _location(self, location: Location) -> list[int]:
        lib = self._lib(location.mapping)
        native = location.mapping is not None or location.address != 0
        lines = [max(line.line, 0) for line in reversed(location.lines)] or [0]
        frames = []
        for number, line in zip(self._names.of(location), lines, strict=True):
            frames.append(self._frame((number, line, lib), self._category(number, native)))
        self._locations[id(location)] = (location, frames)
        return frames

    def _category(self, number: int, native: bool) -> int:
        name = self._names.name(number)
        if name.startswith("["):
            return _WAITING if name.startswith("[syscall:") else _OTHER
        return _NATIVE if native else _PYTHON

    def _frame(self, frame: _Frame, category: int) -> int:
        number = self._frames.setdefault(frame, len(self._frames))
        if number == len(self._categories):
            self._categories.append(category)
        return number

    def _lib(self, mapping: Mapping | None) -> int:
        if mapping is None or not mapping.file:
            return -1
        entry = self._lib_of.get(id(mapping))
        if entry is None:
            # The ranges of one file are one library.
            key = (shown(mapping.file), shown(mapping.build_id))
            number = self._lib_numbers.setdefault(key, len(self.libs))
            if number == len(self.libs):
                self.libs.append(_library(*key))
            entry = self._lib_of[id(mapping)] = (mapping, number)
        return entry[1]

    def shared(self) -> dict[str, Any]:
        """The tables, as columns."""
        strings: dict[str, int] = {}
        sources: dict[int, int] = {}
        resources: dict[tuple[int, int], int] = {}
        # A function is its frame's name within a library.
        functions: dict[tuple[int, int], int] = {}

        def text(of: str) -> int:
            return strings.setdefault(of, len(strings))

        func = [functions.setdefault((name, lib), len(functions)) for name, _, lib in self._frames]
        known = self._names.known
        named = [known[name] for name, _ in functions]
        resource = [
            resources.setdefault((lib, text(frame.module)), len(resources)) if lib >= 0 or frame.module else -1
            for frame, (_, lib) in zip(named, functions, strict=True)
        ]
        source = [sources.setdefault(text(frame.file), len(sources)) if frame.file else None for frame in named]
        funcs = len(functions)
        frames = len(self._frames)
        return {
            "stackTable": {
                "frame": [frame for _, frame in self._stacks],
                "prefix": [above if above >= 0 else None for above, _ in self._stacks],
                "length": len(self._stacks),
            },
            "frameTable": {
                "address": [-1] * frames,
                "inlineDepth": [0] * frames,
                "category": self._categories,
                "subcategory": [0] * frames,
                "func": func,
                "nativeSymbol": [None] * frames,
                "innerWindowID": [0] * frames,
                "line": [line or None for _, line, _ in self._frames],
                "column": [None] * frames,
                "length": frames,
            },
            "funcTable": {
                "name": [text(frame.name) for frame in named],
                "isJS": [False] * funcs,
                "relevantForJS": [False] * funcs,
                "resource": resource,
                "source": source,
                "lineNumber": [frame.line or None for frame in named],
                "columnNumber": [None] * funcs,
                "length": funcs,
            },
            "resourceTable": {
                "lib": [lib if lib >= 0 else None for lib, _ in resources],
                "name": [name for _, name in resources],
                "host": [None] * len(resources),
                "type": [_LIBRARY if lib >= 0 else _UNKNOWN for lib, _ in resources],
                "length": len(resources),
            },
            "nativeSymbols": {"libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0},
            "sources": {
                "id": [None] * len(sources),
                "filename": list(sources),
                "startLine": [1] * len(sources),
                "startColumn": [1] * len(sources),
                "sourceMapURL": [None] * len(sources),
                "length": len(sources),
            },
            "stringArray": list(strings),
        }


def _library(path: str, build_id: str) -> dict[str, Any]:
    name = path.rpartition("/")[2] or path
    return {
        "arch": "",
        "name": name,
        "path": path,
        "debugName": name,
        "debugPath": path,
        "breakpadId": "",
        "codeId": build_id or None,
    }
