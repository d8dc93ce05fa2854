"""Addresses of native code → functions, after sampling, each distinct address once.

What names come from, in order: debug information (the file's own, a separate file, a debuginfod server where
DEBUGINFOD_URLS asks for one), symbol tables, the jitdump or perf map of a JIT compiler. A file is read only where it
is the file that is mapped: never a namesake, and not after it was changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from io import FileIO
from typing import TYPE_CHECKING, NamedTuple

from remoteprof import _native
from remoteprof.errors import RemoteprofError
from remoteprof.modules import VDSO_MAX, Module, Reader, reader_of
from remoteprof.modules.elf import is_mapped, open_regular

if TYPE_CHECKING:
    from remoteprof.debuginfod import Debuginfod
    from remoteprof.modules import Line as MapsLine

    Mapping = _native.Mapping | MapsLine

MAX_PERF_MAP = 64 << 20
"""Most bytes that are read of one perf map."""
MAX_KEPT = 50_000
"""Most addresses of one process whose names are kept; then they are found anew."""
HEAD_MAX = 1 << 14
"""Bytes of a module in memory that are searched for its build id; linkers put it right behind the headers."""


class Line(NamedTuple):
    """One function at an address. Numbers are 0 and `file` is "" where unknown; `system_name` is the linker's name."""

    name: str
    system_name: str
    file: str
    line: int
    column: int
    start_line: int


Names = dict[tuple[int, int], list[Line]]
"""The functions at native frames, by index of the batch's mapping (-1 = none) and address; the innermost inlined call
first. What nothing is known of is left out."""


class Sources(NamedTuple):
    """What a module's names, and its unwinding, can come from."""

    debug_info: bool = False
    debug_file: str = ""
    """Where the debug information is, if not in the module itself: a path as the target sees it, or in the cache of
    what debuginfod servers had."""
    symtab: bool = False
    dynsym: bool = False
    mini_debug_info: bool = False
    refused: str = ""
    """Why there is nothing at all."""
    symtab_in_debug_file: bool = False
    eh_frame: bool = False
    debug_frame: bool = False

    @property
    def unwind_tables(self) -> list[str]:
        """The sections that stacks are unwound by."""
        return [name for name, there in ((".eh_frame", self.eh_frame), (".debug_frame", self.debug_frame)) if there]

    @property
    def symbol_tables(self) -> list[str]:
        """The sections with symbols in the module or its debug file."""
        tables = (
            (".symtab", self.symtab),
            (".dynsym", self.dynsym),
            (".gnu_debugdata", self.mini_debug_info),
        )
        return [name for name, there in tables if there]


def is_jit_dump(path: str) -> bool:
    """Whether the path of a mapping is that of a jitdump, by the name that perf goes by."""
    return re.search(r"/jit-[0-9]+\.dump(?: \(deleted\))?$", path) is not None


class Symbols:
    """The names of one process's native code. What was found is kept, so that a later window asks for new addresses
    only."""

    def __init__(self, target: _native.Target, reader: Reader | None = None) -> None:
        self._target = target
        self._reader = reader or reader_of(target)
        self._known: dict[tuple[int, int, int, str], dict[int, list[Line]]] = {}
        self._sources: dict[tuple[str, int, str], Sources] = {}
        self._perf_map: FileIO | None = None
        self._jit_dump: FileIO | None = None
        self._vdso = b""
        self._jit: dict[int, list[Line]] = {}
        self._kept = 0
        self._ids: dict[tuple[str, int, str], str] = {}
        self._debuginfod: Debuginfod | None = None
        if os.environ.get("DEBUGINFOD_URLS", "").strip():
            from remoteprof.debuginfod import Debuginfod

            self._debuginfod = Debuginfod.from_environment()

    def look(self, mappings: Iterable[Mapping] = ()) -> None:
        """Reads now what cannot be read any more when the process has ended: the vDSO, build ids of `mappings` as they
        are in memory; and opens the perf map, which is written on."""
        with contextlib.suppress(OSError, RemoteprofError):
            self._open_perf_map()
        mappings = list(mappings)
        self._open_jit_dump(mappings)
        if len(self._ids) > MAX_KEPT:
            self._ids.clear()
            self._sources.clear()
        for mapping in mappings:
            if mapping.path == "[vdso]":
                self._image(mapping)
        self._look_at_ids(mapping for mapping in mappings if mapping.path.startswith("/"))

    def lines(self, mappings: Sequence[Mapping], addresses: Iterable[int]) -> dict[int, list[Line]]:
        """The functions at each of `addresses`, the innermost inlined call first. Addresses of which nothing is known
        are left out. An address is a program counter or lies inside of a call, as pprof has it."""
        if self._kept > MAX_KEPT:
            self._known.clear()
            self._jit.clear()
            self._kept = 0
        found: dict[int, list[Line]] = {}
        rest = sorted(set(addresses))
        unknown: list[int] = []
        ordered = sorted(mappings, key=lambda mapping: mapping.start)
        position = 0
        for mapping in ordered:
            while position < len(rest) and rest[position] < mapping.start:
                unknown.append(rest[position])
                position += 1
            first = position
            while position < len(rest) and rest[position] < mapping.end:
                position += 1
            inside = rest[first:position]
            if inside:
                of = self._of_mapping(mapping, inside)
                for address in inside:
                    if of[address]:
                        found[address] = of[address]
                    else:
                        unknown.append(address)
        unknown.extend(rest[position:])
        if unknown:
            found.update(self._of_jit(unknown))
        return found

    def sources(self, mapping: Mapping) -> Sources:
        """What names of a module can come from."""
        if (mapping.device, mapping.inode, mapping.path) not in self._sources:
            self._ask(mapping, [])
        return self._sources.get((mapping.device, mapping.inode, mapping.path), Sources())

    def _of_mapping(self, mapping: Mapping, addresses: list[int]) -> dict[int, list[Line]]:
        key = (mapping.start, mapping.offset, mapping.inode, mapping.path)
        known = self._known.setdefault(key, {})
        new = [address for address in addresses if address not in known]
        if new:
            self._kept += len(new)
            for address, lines in zip(new, self._ask(mapping, new), strict=True):
                known[address] = lines
        return known

    def _ask(self, mapping: Mapping, addresses: list[int]) -> list[list[Line]]:
        if mapping.path == "[vdso]":
            image = self._image(mapping)
            return self._symbolize(mapping, image, addresses, "") if image else [[] for _ in addresses]
        if not mapping.path.startswith("/"):
            return self._of_module(mapping, addresses)
        self._look_at_ids([mapping])
        build_id = self._ids[mapping.device, mapping.inode, mapping.path]
        descriptor = self._open(mapping)
        if descriptor is None:
            self._sources[mapping.device, mapping.inode, mapping.path] = Sources(refused="the file is not to be found")
            return [[] for _ in addresses]
        try:
            return self._symbolize(mapping, descriptor, addresses, build_id)
        finally:
            os.close(descriptor)

    def _of_module(self, mapping: Mapping, addresses: list[int]) -> list[list[Line]]:
        """The functions in what is no file of this system: none are known."""
        return [[] for _ in addresses]

    def _symbolize(
        self, mapping: Mapping, source: int | bytes, addresses: list[int], build_id: str, debug_file: int = -1
    ) -> list[list[Line]]:
        path = mapping.path.removesuffix(" (deleted)")
        roots = [f"/proc/{self._target.pid}/root", "/"]
        key = (mapping.device, mapping.inode, mapping.path)
        try:
            told = _native.symbolize(
                source,
                mapping.start,
                mapping.offset,
                addresses,
                build_id=build_id,
                path=path if isinstance(source, int) else "",
                roots=roots if isinstance(source, int) else [],
                debug_file=debug_file,
            )
        except (OSError, ValueError) as error:
            self._sources[key] = Sources(refused=str(error))
            return [[] for _ in addresses]
        if self._debuginfod is not None and not told["debug_info"] and debug_file < 0 and told["build_id"]:
            # To only say what there is, nothing is downloaded.
            debuginfod = self._debuginfod
            fetched = debuginfod.fetch(told["build_id"]) if addresses else debuginfod.cached(told["build_id"])
            if fetched is not None:
                try:
                    return self._symbolize(mapping, source, addresses, build_id, fetched)
                finally:
                    os.close(fetched)
        apart = told["debug_file"]
        if apart == "" and self._debuginfod is not None:
            apart = str(self._debuginfod.path(told["build_id"]))
        self._sources[key] = Sources(
            told["debug_info"],
            apart or "",
            told["symtab"],
            told["dynsym"],
            told["mini_debug_info"],
            "",
            told["symtab_in_debug_file"],
            told["eh_frame"],
            told["debug_frame"],
        )
        return [[Line(*line) for line in lines] for lines in told["lines"]]

    def _open(self, mapping: Mapping) -> int | None:
        """The mapped file, open; None where it is not to be found any more."""
        for path in self._reader.places(mapping):
            try:
                descriptor = open_regular(path)
            except (OSError, ValueError):
                continue
            if descriptor is None:
                continue
            if is_mapped(descriptor, os.fstat(descriptor), mapping):
                return descriptor
            os.close(descriptor)
        return None

    def _image(self, mapping: Mapping) -> bytes:
        if not self._vdso:
            with contextlib.suppress(OSError):
                self._vdso = self._target.read(mapping.start, min(mapping.end - mapping.start, VDSO_MAX))
        return self._vdso

    def _look_at_ids(self, mappings: Iterable[Mapping]) -> None:
        """The build ids of what is mapped, whatever became of the files; "" = not known."""
        new = {(mapping.device, mapping.inode, mapping.path) for mapping in mappings} - self._ids.keys()
        if not new:
            return
        self._ids.update(dict.fromkeys(new, ""))
        with contextlib.suppress(OSError, RemoteprofError):
            for mapping in self._target.mappings():
                key = (mapping.device, mapping.inode, mapping.path)
                if key in new and mapping.offset == 0:
                    new.remove(key)
                    with contextlib.suppress(OSError, ValueError):
                        head = self._target.read(mapping.start, min(mapping.end - mapping.start, HEAD_MAX))
                        self._ids[key] = _native.build_id(head)

    def _open_perf_map(self) -> None:
        # The pid may be another process's by now.
        if _native.Target(self._target.pid).start_time == self._target.start_time:
            self._perf_map = FileIO(_native.perf_map(self._target.pid))

    def _read_perf_map(self) -> bytes:
        """As it is now, or as its process left it."""
        with contextlib.suppress(OSError, RemoteprofError):
            self._open_perf_map()
        if self._perf_map is not None:
            with contextlib.suppress(OSError):
                self._perf_map.seek(0)
                return self._perf_map.read(MAX_PERF_MAP)
        return b""

    def _open_jit_dump(self, mappings: Iterable[Mapping]) -> None:
        """A jitdump is mapped executable by who writes it, for perf to see; it is read when there are addresses."""
        for mapping in mappings:
            if self._jit_dump is None and is_jit_dump(mapping.path):
                descriptor = self._open(mapping)
                if descriptor is not None:
                    self._jit_dump = FileIO(descriptor)

    def _of_jit(self, addresses: list[int]) -> dict[int, list[Line]]:
        new = [address for address in addresses if address not in self._jit]
        if new:
            self._kept += len(new)
            # Written while the program runs: what was read before may lack the newest code.
            for address, name in zip(new, _native.perf_map_names(self._read_perf_map(), new), strict=True):
                self._jit[address] = [Line(name, name, "", 0, 0, 0)] if name else []
            # It knows lines too.
            if self._jit_dump is None:
                with contextlib.suppress(OSError, RemoteprofError):
                    self._open_jit_dump(self._target.mappings())
            if self._jit_dump is not None:
                with contextlib.suppress(OSError):
                    told = _native.jit_dump_names(self._jit_dump.fileno(), new)
                    self._jit.update(
                        (address, [Line(known[0], known[0], *known[1:], 0, 0)])
                        for address, known in zip(new, told, strict=True)
                        if known
                    )
        return {address: self._jit[address] for address in addresses if self._jit[address]}


def symbols_of(target: _native.Target, reader: Reader | None = None) -> Symbols:
    """The names of one process's native code, for this system; arguments as of Symbols."""
    if sys.platform == "win32":
        from remoteprof.nt.symbols import ModuleSymbols

        return ModuleSymbols(target, reader)
    return Symbols(target, reader)


def sources_of(pid: int) -> list[tuple[Module, Sources]]:
    """What is mapped into process `pid` now, the main binary first, and what is known of each module. Raises
    ProcessNotFound, PermissionDenied."""
    target = _native.Target(pid)
    reader = reader_of(target)
    reader.look()
    symbols = symbols_of(target, reader)
    mappings = {mapping.start: mapping for mapping in reader.mappings()}
    return [
        (module, symbols.sources(mappings[module.start]) if module.start in mappings else Sources())
        for module in reader.modules()
    ]
