"""Modules: what is mapped into a process, with identity.

The rules: every named executable range is a module, the main binary first, the rest in address order. Ranges of one
file are not joined. A file is read only where it is the file that is mapped, never a namesake.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from remoteprof._native import Mapping, Target

DELETED = " (deleted)"
MAX_SEEN = 10_000
"""Most ranges that are remembered of one process; then only what is mapped now."""
VDSO_MAX = 1 << 16
"""Bytes of the vDSO's image that are read; it has two pages, or a few."""


class Module(NamedTuple):
    """A range of memory that holds code: `start <= address < end`, `offset` in the file, `path` as the target sees it,
    `build_id` in hex, "" = none."""

    start: int
    end: int
    offset: int
    path: str
    build_id: str = ""


FAKE = Module(0, 0, 0, "", "")
"""What takes every address of a process of which nothing is known to be mapped."""


class Line(NamedTuple):
    """One range of a maps text; the fields are those of the native Mapping."""

    start: int
    end: int
    permissions: str
    offset: int
    device: str
    inode: int
    path: str


_LINE = re.compile(
    r"([0-9a-fA-F]{1,16})-([0-9a-fA-F]{1,16}) +(\S{4,}) +([0-9a-fA-F]{1,16})(?: +(\S+)(?: +(\d{1,20})(?: +(.*))?)?)?"
)


def parse_lines(text: str) -> tuple[list[Line], int]:
    """The lines of a /proc/PID/maps text, and how many were no such lines and skipped."""
    lines, bad = [], 0
    for row in text.split("\n"):
        if not row.strip():
            continue
        match = _LINE.fullmatch(row)
        if match is None:
            bad += 1
            continue
        start, end, permissions, offset, device, inode, path = match.groups()
        lines.append(
            Line(int(start, 16), int(end, 16), permissions, int(offset, 16), device or "", int(inode or 0), path or "")
        )
    return lines, bad


def parse_maps(text: str) -> list[Module]:
    """The modules of a /proc/PID/maps text, in its order and without build ids; bad lines are skipped."""
    lines, _ = parse_lines(text)
    return [_module(line, "") for line in lines if kept(line)] or [FAKE]


def is_module(path: str) -> bool:
    r"""Whether a mapping is a loaded module of Windows, by its path: `C:\\…`, or `\\\\…`."""
    return path.startswith("\\\\") or path[1:3] == ":\\"


def kept(mapping: Line | Mapping) -> bool:
    """Whether a range becomes a module: executable, and with a name."""
    return len(mapping.permissions) >= 4 and mapping.permissions[2] == "x" and bool(mapping.path)


def _module(mapping: Line | Mapping, build_id: str) -> Module:
    return Module(mapping.start, mapping.end, mapping.offset, mapping.path.removesuffix(DELETED), build_id)


class Reader:
    """Reads the modules of one process, repeatedly: what was learned of a file is kept by its identity, so that it is
    still known when the process has ended.

    `unreadable` counts the files (and vDSO images) whose build id could not be read for another reason than that they
    have none. `trouble` says what was wrong with the list of modules when it was read last.
    """

    def __init__(self, target: Target, ids: dict[tuple[str, int, str], str] | None = None) -> None:
        """`ids`: build ids by the identity of a file, shared with other readers of this machine."""
        self.target = target
        self._proc = Path(f"/proc/{target.pid}")
        self._ids = {} if ids is None else ids
        self._seen: dict[tuple[int, int, int, str], Line | Mapping] = {}
        self._main = ""
        self._vdso: str | None = None
        self.unreadable = 0
        self.trouble = ""

    def look(self, more: Iterable[Mapping] = ()) -> None:
        """Reads what is mapped now, and adds it, and `more`, to what was seen. Raises as Target.mappings does."""
        # Where it has ended, or is not ours, the order of addresses remains.
        with contextlib.suppress(OSError):
            self._main = str((self._proc / "exe").readlink()).removesuffix(DELETED)
        mapped = self.target.mappings()
        if len(self._seen) > MAX_SEEN:
            self._seen.clear()
        self.add(mapped)
        self.add(more)

    def add(self, mappings: Iterable[Line | Mapping]) -> None:
        """Adds ranges to what was seen; those that they overlap were unmapped meanwhile and are forgotten."""
        for mapping in mappings:
            key = (mapping.start, mapping.end, mapping.offset, mapping.path)
            if not kept(mapping) or key in self._seen:
                continue
            for old in [old for old in self._seen if old[0] < mapping.end and mapping.start < old[1]]:
                del self._seen[old]
            self._seen[key] = mapping
            self._build_id(mapping)

    def mappings(self) -> list[Line | Mapping]:
        """The ranges seen, in the order of their addresses."""
        return sorted(self._seen.values(), key=lambda mapping: mapping.start)

    def modules(self) -> list[Module]:
        """What was seen, the main binary first; the fake module where there is nothing."""
        found = sorted(
            self._seen.values(), key=lambda mapping: (mapping.path.removesuffix(DELETED) != self._main, mapping.start)
        )
        return [_module(mapping, self._build_id(mapping)) for mapping in found] or [FAKE]

    def _build_id(self, mapping: Line | Mapping) -> str:
        if mapping.path == "[vdso]":
            return self._vdso_id(mapping)
        if not mapping.path.startswith("/"):
            return ""
        key = (mapping.device, mapping.inode, mapping.path)
        if key not in self._ids:
            self._ids[key] = self._file_id(mapping)
        return self._ids[key]

    def _vdso_id(self, mapping: Line | Mapping) -> str:
        if self._vdso is None:
            from remoteprof.modules.elf import BadElf, build_id_of_image

            try:
                image = self.target.read(mapping.start, min(mapping.end - mapping.start, VDSO_MAX))
                self._vdso = build_id_of_image(image)
            except (OSError, BadElf):
                self.unreadable += 1
                self._vdso = ""
        return self._vdso

    def _file_id(self, mapping: Line | Mapping) -> str:
        from remoteprof.modules.elf import BadElf, build_id_of_file

        for path in self.places(mapping):
            try:
                found = build_id_of_file(path, mapping)
            except (OSError, BadElf):
                continue
            if found is not None:
                return found
        self.unreadable += 1
        return ""

    def places(self, mapping: Line | Mapping) -> Iterator[str]:
        """Paths where the mapped file may be found, the surest place last; each is checked to be that file."""
        shown = os.fsencode(mapping.path).replace(b"\\012", b"\n")
        try:
            root = os.fsencode((self._proc / "root").readlink())
        except OSError:
            root = b"/"
        for name in dict.fromkeys([shown.removesuffix(DELETED.encode()), shown]):
            # In a chroot the kernel shows paths from our root, in a container from its own.
            inside = name[len(root) :] if root != b"/" and name.startswith(root + b"/") else name
            yield os.fsdecode(os.fsencode(self._proc / "root") + inside)
            yield os.fsdecode(name)
        if mapping.path.removesuffix(DELETED) == self._main:
            yield str(self._proc / "exe")
        yield str(self._proc / "map_files" / f"{mapping.start:x}-{mapping.end:x}")


def reader_of(target: Target, ids: dict[tuple[str, int, str], str] | None = None) -> Reader:
    """A reader for the modules of this system; arguments as of Reader."""
    if sys.platform == "win32":
        from remoteprof.modules.pe import PeReader

        return PeReader(target, ids)
    return Reader(target, ids)


def modules_of(pid: int) -> list[Module]:
    """What is mapped into process `pid` now. Raises ProcessNotFound, PermissionDenied, NothingToProfile."""
    from remoteprof._native import Target

    reader = reader_of(Target(pid))
    reader.look()
    return reader.modules()
