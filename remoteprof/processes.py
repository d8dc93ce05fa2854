"""The processes of a recording, as the supervisor sees them.

What is mapped is looked at while they live; the names of native code are found once for all that run the same file."""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from remoteprof.errors import RemoteprofError

if TYPE_CHECKING:
    from remoteprof._native import Batch, Mapping, Target
    from remoteprof.modules import Module, Reader
    from remoteprof.symbols import Line, Names, Symbols

LOOKS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Seconds between looks at what is mapped: libraries come early; what comes late is met while sampling."""
FIRST_LOOK = 0.02
"""Seconds until the first look at a descendant: before that it may not run its own program yet."""
SHARE = 20
"""Looking at descendants may take one part in this many of the time: they and we share the cores."""
MAX_WAITING = 100_000
"""Most looks that are planned; a process without one is known from its samples."""
MAX_NAMES = 100_000
"""Most addresses, and most files, of which names and build ids are kept from one window or recording to the next."""
VDSO = "[vdso]"


class Ended:
    """Stands for a process that ended before it was looked at: the files that it ran are known from its samples. The
    vDSO is that of every process here, ours too."""

    def __init__(self, pid: int, vdso: int, image: bytes) -> None:
        """`vdso`: where `image` was in the process."""
        self.pid = pid
        self.start_time = -1
        self.name = ""
        self._vdso = vdso
        self._image = image

    def mappings(self) -> list[Mapping]:
        """Nothing is mapped any more."""
        return []

    def threads(self) -> list[int]:
        """Nothing runs any more."""
        return []

    def read(self, address: int, size: int) -> bytes:
        """Memory of the vDSO; OSError for any other."""
        if not self._image or address != self._vdso:
            raise OSError(f"process {self.pid} has ended: cannot read {size} bytes at {address:#x}")
        return self._image[:size]


@dataclass(slots=True, eq=False)
class Process:
    """One process. `reader` is None until it was looked at."""

    pid: int
    number: int = 0
    """No other process of the recording has it: pids are given again."""
    reader: Reader | None = None
    symbols: Symbols | None = None
    looks: int = 0
    ended: bool = False
    """Its batch has come."""


@dataclass(slots=True)
class Window:
    """What a window brought: batches, and the process of each."""

    batches: list[Batch] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)


@dataclass(slots=True)
class Settled:
    """What is known in the end: modules by pid, and the names of each batch."""

    modules: dict[int, list[Module]] = field(default_factory=dict)
    names: list[Names] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Processes:
    """All processes of a recording. None of its methods raises for a process that has ended or refuses.

    settle() may run in another thread than the rest. What is known of files is kept from window to window, up to a
    bound; then it is found anew."""

    def __init__(self, native: bool, before: Processes | None = None) -> None:
        """`native`: names of native code are wanted. `before`: those of an earlier recording, whose names are kept."""
        self._native = native
        self._live: dict[int, Process] = {}
        self._count = 0
        self._window = Window()
        self._taken: list[Process] = []
        self._names_kept = 0
        self._busy = threading.Lock()
        self._plan: list[tuple[float, int, Process]] = []
        self._planned = 0
        self._rest_until = 0.0
        self._ids: dict[tuple[str, int, str], str] = {}
        self._known: dict[tuple[str, int, str], dict[int, list[Line]]] = {}
        if before is not None:
            self._ids, self._known, self._names_kept = before._ids, before._known, before._names_kept

    def add(self, pid: int, *, below: bool = False) -> None:
        """A process is recorded from now on; `below`: below another. A former one of this pid has ended."""
        process = self._live[pid] = self._new(pid)
        self._plan_look(process, time.monotonic() + (FIRST_LOOK if below else LOOKS[0]))

    def forget(self, pid: int) -> None:
        """A process has ended without a batch."""
        self._live.pop(pid, None)

    def end(self, batch: Batch) -> None:
        """The last batch of a process has come."""
        self.part(batch)
        self._window.processes[-1].ended = True

    def part(self, batch: Batch) -> None:
        """The batch of a process that goes on has come."""
        self._window.batches.append(batch)
        self._window.processes.append(self._live.get(batch.pid) or self._new(batch.pid))

    def _new(self, pid: int) -> Process:
        self._count += 1
        return Process(pid, self._count)

    def take(self) -> Window:
        """What has come since it was taken last."""
        window, self._window = self._window, Window()
        for process in self._taken:
            if process.ended and self._live.get(process.pid) is process:
                del self._live[process.pid]
        self._taken = window.processes
        return window

    def pids(self) -> list[int]:
        """The processes that are recorded now."""
        return [pid for pid, process in self._live.items() if not process.ended]

    def next_look(self) -> float:
        """When look() has something to do next, on time.monotonic()."""
        return max(self._plan[0][0], self._rest_until) if self._plan else float("inf")

    def look(self) -> None:
        """Looks at one process whose time has come; later, where names are being found."""
        if not self._busy.acquire(blocking=False):
            self._rest_until = time.monotonic() + FIRST_LOOK
            return
        try:
            self._look_at_next(time.monotonic())
        finally:
            self._busy.release()

    def _look_at_next(self, now: float) -> None:
        while self._plan and self._plan[0][0] <= now and self._rest_until <= now:
            _, _, process = heapq.heappop(self._plan)
            if process.ended or self._live.get(process.pid) is not process:
                continue
            began = time.thread_time()
            self._look(process)
            process.looks += 1
            self._plan_look(process, now + LOOKS[min(process.looks, len(LOOKS) - 1)])
            if len(self._live) > 1:
                self._rest_until = now + SHARE * (time.thread_time() - began)

    def _plan_look(self, process: Process, when: float) -> None:
        if len(self._plan) < MAX_WAITING:
            self._planned += 1
            heapq.heappush(self._plan, (when, self._planned, process))

    def _look(self, process: Process) -> None:
        from remoteprof._native import Target
        from remoteprof.modules import reader_of

        # What cannot be looked at now was seen before, or is met while sampling.
        with contextlib.suppress(RemoteprofError, OSError):
            target = Target(process.pid)
            if process.reader is None:
                process.reader = reader_of(target, self._ids)
            elif process.reader.target.start_time != target.start_time:
                return
            process.reader.look()
            if self._native:
                self._symbols_of(process, process.reader).look(process.reader.mappings())

    def _symbols_of(self, process: Process, reader: Reader) -> Symbols:
        from remoteprof.symbols import symbols_of

        if process.symbols is None:
            process.symbols = symbols_of(reader.target, reader)
        return process.symbols

    def settle(self, window: Window, modules: bool) -> Settled:
        """What is known of the processes of `window`, in the order of its batches."""
        settled = Settled()
        if modules:
            with self._busy:
                self._settle(window, settled)
        return settled

    def _settle(self, window: Window, settled: Settled) -> None:
        if self._names_kept > MAX_NAMES or len(self._ids) > MAX_NAMES:
            self._known.clear()
            self._ids.clear()
            self._names_kept = 0
        processes = {id(process): process for process in window.processes}.values()
        for process in processes:
            if self._live.get(process.pid) is process:
                self._look(process)
        vdso = _own_vdso()
        unreadable: dict[int, int] = {}
        for process, batch in zip(window.processes, window.batches, strict=True):
            if process.reader is None:
                process.reader = _ended(batch, vdso, self._ids)
            process.reader.add(batch.mappings)
            found = settled.modules.setdefault(process.pid, [])
            found.extend(module for module in process.reader.modules() if module not in found)
            unreadable[process.pid] = process.reader.unreadable
            if process.reader.trouble:
                settled.notes.append(f"pid {process.pid}: {process.reader.trouble}")
            settled.names.append(self._names(batch, self._symbols_of(process, process.reader)) if self._native else {})
        for pid, count in unreadable.items():
            if count:
                settled.notes.append(f"no build id could be read of {count} modules of pid {pid}")

    def _names(self, batch: Batch, symbols: Symbols) -> Names:
        """The functions at every native frame of a batch, by its mapping and address. What one process has told of a
        file is true of all that run it."""
        from remoteprof.symbols import Line

        places: dict[int, set[int]] = {}
        names: Names = {}
        told = dict(batch.lines)
        for index, (kind, _, _, _, _, address, mapping) in enumerate(batch.frames):
            if index in told:
                names[mapping, address] = [
                    Line(name, name, file, line, 0, start_line) for name, file, line, start_line in told[index]
                ]
            elif kind in ("native", "loop"):
                places.setdefault(mapping, set()).add(address)
        mappings = batch.mappings
        for index, addresses in places.items():
            # One at a time: over the time of a recording the same addresses may have belonged to several.
            found = self._of_file(mappings[index], addresses, symbols) if index >= 0 else symbols.lines([], addresses)
            names.update({(index, address): lines for address, lines in found.items()})
        return names

    def _of_file(self, mapping: Mapping, addresses: Iterable[int], symbols: Symbols) -> dict[int, list[Line]]:
        if not mapping.path.startswith("/"):
            return symbols.lines([mapping], addresses)
        known = self._known.setdefault((mapping.device, mapping.inode, mapping.path), {})
        bias = mapping.start - mapping.offset
        new = [address for address in addresses if address - bias not in known]
        if new:
            found = symbols.lines([mapping], new)
            sources = symbols.sources(mapping)
            read = sources.debug_info or sources.symtab or sources.dynsym or sources.mini_debug_info
            fresh = {address - bias: found.get(address, []) for address in new if read or address in found}
            known.update(fresh)
            self._names_kept += len(fresh)
        return {address: lines for address in addresses if (lines := known.get(address - bias))}


def _own_vdso() -> bytes:
    from remoteprof.modules import VDSO_MAX, parse_lines

    with contextlib.suppress(OSError):
        lines, _ = parse_lines(Path("/proc/self/maps").read_text(errors="replace"))
        for line in lines:
            if line.path == VDSO:
                with Path("/proc/self/mem").open("rb") as memory:
                    memory.seek(line.start)
                    return memory.read(min(line.end - line.start, VDSO_MAX))
    return b""


def _ended(batch: Batch, vdso: bytes, ids: dict[tuple[str, int, str], str]) -> Reader:
    from remoteprof.modules import reader_of

    place = next((mapping.start for mapping in batch.mappings if mapping.path == VDSO), 0)
    return reader_of(cast("Target", Ended(batch.pid, place, vdso)), ids)
