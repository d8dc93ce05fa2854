"""How the native frames of a batch are shown: their names, what stands for a missing one, and which are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remoteprof.profile.hidden import is_hidden, is_interpreter

if TYPE_CHECKING:
    from remoteprof._native import Batch
    from remoteprof.symbols import Line, Names

VDSO = "_VDSO"
"""An address in the vDSO of which no symbol is known."""
EXTERNAL = "_ExternalCode"
"""Executable memory of no known module."""
UNMATCHED = "[unmatched]"
"""Between the native and the Python half of a stack whose frames could not be put into one order."""
_VSYSCALLS = {0x000: "vgettimeofday", 0x400: "vtime", 0x800: "vgetcpu"}
"""Offsets in the vsyscall page: arch/x86/entry/vsyscall/vsyscall_emu_64.S."""


class NativeFrames:
    """The native frames of one batch, by index of the frame."""

    def __init__(self, batch: Batch, names: Names, show_all: bool) -> None:
        """`names`: what Symbols.of_batch found; `show_all`: leave nothing out."""
        self._lines: dict[int, list[Line]] = {}
        self._shown: dict[int, list[Line]] = {}
        self._python: set[int] = set()
        self._unmatched = -1
        places = [mapping.path for mapping in batch.mappings]
        native: list[tuple[int, int]] = []
        for index, (kind, name, _, _, _, address, mapping) in enumerate(batch.frames):
            if kind == "python":
                self._python.add(index)
            elif kind == "native":
                self._lines[index] = names.get((mapping, address)) or _unknown(
                    places[mapping] if mapping >= 0 else "", address
                )
                native.append((index, mapping))
            elif name == UNMATCHED:
                self._unmatched = index
        self._python -= {self._unmatched}
        if show_all or not self._python:
            self._shown = self._lines
            return
        interpreters = {
            places[mapping]
            for index, mapping in native
            if mapping >= 0 and any(is_interpreter(line.system_name) for line in self._lines[index])
        }
        for index, mapping in native:
            within = mapping >= 0 and places[mapping] in interpreters
            lines = self._lines[index]
            self._shown[index] = [line for line in lines if not is_hidden(line.system_name, within)] if lines else lines

    def lines(self, index: int) -> list[Line]:
        """The functions at a native frame, the innermost inlined call first; none are known of a bare address."""
        return self._lines[index]

    def shown(self, index: int) -> list[Line] | None:
        """The same without those that are left out between Python frames; None if all are."""
        return self._shown[index] or (None if self._lines[index] else [])

    def merged(self, stack: list[int]) -> bool:
        """Whether native and Python frames stand in one order in a stack: only there frames are left out."""
        return not self._python.isdisjoint(stack) and self._unmatched not in stack


def _unknown(path: str, address: int) -> list[Line]:
    """What stands for a name, where a bare address would tell nothing."""
    from remoteprof.symbols import Line

    if path == "[vdso]":
        name = VDSO
    elif path == "[vsyscall]":
        name = _VSYSCALLS.get(address & 0xC00, VDSO)
    elif path.startswith("/"):
        return []
    else:
        name = EXTERNAL
    return [Line(name, name, "", 0, 0, 0)]
