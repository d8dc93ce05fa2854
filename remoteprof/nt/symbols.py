"""Names of native code of Windows: from the files of modules, each only where it is the file that is loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from remoteprof import _native
from remoteprof.modules.pe import HEAD_BYTES
from remoteprof.symbols import Line, Sources, Symbols

if TYPE_CHECKING:
    from remoteprof.modules import Reader
    from remoteprof.symbols import Mapping


class ModuleSymbols(Symbols):
    """The names of one process's native code on Windows: debug information (DWARF), COFF symbols, exports."""

    def __init__(self, target: _native.Target, reader: Reader | None = None) -> None:
        super().__init__(target, reader)
        self._heads: dict[tuple[str, int, str], bytes] = {}

    def look(self, mappings: Iterable[Mapping] = ()) -> None:
        """Reads the headers of modules, which cannot be read any more when the process has ended."""
        for mapping in mappings:
            self._head(mapping)

    def _head(self, mapping: Mapping) -> bytes:
        """How a module begins in memory; b"" = not to be had."""
        key = (f"{mapping.start:x}", mapping.end - mapping.start, mapping.path)
        if key not in self._heads:
            with contextlib.suppress(OSError):
                self._heads[key] = self._target.read(mapping.start, HEAD_BYTES)
        return self._heads.get(key, b"")

    def _of_module(self, mapping: Mapping, addresses: list[int]) -> list[list[Line]]:
        key = (mapping.device, mapping.inode, mapping.path)
        offsets = [address - mapping.start for address in addresses]
        try:
            debug_info, lines = _native.symbolize_pe(mapping.path, self._head(mapping), offsets)
        except (OSError, ValueError) as error:
            self._sources[key] = Sources(refused=str(error))
            return [[] for _ in addresses]
        self._sources[key] = Sources(debug_info=debug_info)
        return [[Line(*line) for line in of_address] for of_address in lines]

    def _of_jit(self, addresses: list[int]) -> dict[int, list[Line]]:
        return {}
