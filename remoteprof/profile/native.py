"""How the native frames of a batch are shown: their names, what stands for a missing one, and which are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remoteprof.modules import is_module
from remoteprof.profile.hidden import visible

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
        """`names`: of the functions at its native frames; `show_all`: leave nothing out."""
        self._lines: dict[int, list[Line]] = {}
        self._shown: dict[int, list[Line] | None] = {}
        self._python: set[int] = set()
        self._unmatched = -1
        places = [mapping.path for mapping in batch.mappings]
        native: list[tuple[int, int]] = []
        loops: set[int] = set()
        interpreters: set[str] = set()
        for index, (kind, name, _, _, _, address, mapping) in enumerate(batch.frames):
            if kind == "python":
                self._python.add(index)
            elif kind in ("native", "loop"):
                self._lines[index] = names.get((mapping, address)) or _unknown(
                    places[mapping] if mapping >= 0 else "", address
                )
                native.append((index, mapping))
                if kind == "loop":
                    loops.add(index)
                    interpreters.add(places[mapping])
            elif name == UNMATCHED:
                self._unmatched = index
        self._python -= {self._unmatched}
        if show_all or not self._python:
            self._shown.update(self._lines)
            return
        for index, mapping in native:
            within = mapping >= 0 and places[mapping] in interpreters
            lines = self._lines[index]
            left = [lines[kept] for kept in visible([line.system_name for line in lines], within)]
            self._shown[index] = None if index in loops or (lines and not left) else left

    def lines(self, index: int) -> list[Line]:
        """The functions at a native frame, the innermost inlined call first; none are known of a bare address."""
        return self._lines[index]

    def shown(self, index: int) -> list[Line] | None:
        """The same without those that are left out between Python frames; None if all are."""
        return self._shown[index]

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
    elif path.startswith("/") or is_module(path):
        return []
    else:
        name = EXTERNAL
    return [Line(name, name, "", 0, 0, 0)]
