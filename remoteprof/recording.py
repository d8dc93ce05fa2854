"""What a recording, or one window of it, brought home."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from remoteprof import stats as statistics
from remoteprof.process import host

if TYPE_CHECKING:
    from remoteprof._native import Batch
    from remoteprof.modules import Module
    from remoteprof.processes import Process, Processes, Window
    from remoteprof.profile.model import Profile
    from remoteprof.session import Options
    from remoteprof.symbols import Names

BIASED = "biased: no thread was stopped (--nonblocking); stacks that change quickly are underrepresented"


@dataclass(slots=True)
class Recording:
    """What a session brought home. Complete in itself: the target and the sampler may be gone."""

    options: Options
    since_ns: int
    """CLOCK_MONOTONIC: what attached_ms and first_sample_ms count from."""
    batches: list[Batch] = field(default_factory=list)
    modules: dict[int, list[Module]] = field(default_factory=dict)
    names: list[Names] = field(default_factory=list)
    """Of the native frames of each batch."""
    notes: list[str] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    """The pids that were asked for; the batches of their descendants come after theirs."""
    processes: list[Process] = field(default_factory=list)
    """Of each batch: several windows have several batches of one process."""

    def settle(self, processes: Processes, window: Window, modules: bool) -> None:
        """Takes in a window, its batches in order; `modules`: with what was mapped, and the names of native frames."""
        roots = {pid: place for place, pid in enumerate(self.roots)}
        self.batches = list(window.batches)
        found = processes.settle(window, modules)
        order = sorted(range(len(self.batches)), key=lambda index: roots.get(self.batches[index].pid, len(roots)))
        self.batches = [self.batches[index] for index in order]
        self.processes = [window.processes[index] for index in order]
        if modules:
            self.names = [found.names[index] for index in order]
            self.modules = found.modules
            self.notes.extend(found.notes)

    def by_process(self) -> Iterator[Recording]:
        """The same, of one process each."""
        for places in self._places():
            pid = self.batches[places[0]].pid
            modules = {pid: self.modules[pid]} if pid in self.modules else {}
            batches = [self.batches[place] for place in places]
            names = [self.names[place] for place in places] if self.names else []
            yield replace(self, batches=batches, names=names, modules=modules, processes=[])

    def _places(self) -> list[list[int]]:
        """The places of the batches of each process."""
        found: dict[int, list[int]] = {}
        for place, process in enumerate(self.processes):
            found.setdefault(process.number, []).append(place)
        return list(found.values())

    def parts(self) -> list[dict[str, Any]]:
        """The stats of each batch."""
        return [
            {
                "pid": batch.pid,
                "process": batch.process,
                "duration_ns": batch.duration_ns,
                "rate_hz": self.options.rate,
                **batch.stats,
            }
            for batch in self.batches
        ]

    def by_number(self) -> dict[int, dict[str, Any]]:
        """The sum of the parts of each process, by its number."""
        parts = self.parts()
        return {
            self.processes[places[0]].number: statistics.add_up([parts[place] for place in places])
            for places in self._places()
        }

    def total(self) -> dict[str, Any]:
        """The sum of all parts, over the time from the first start to the last end."""
        total = statistics.add_up(self.parts())
        starts = [batch.start_ns for batch in self.batches if batch.start_ns]
        if starts:
            # Of several windows that is more than the longest.
            ends = [batch.start_ns + batch.duration_ns for batch in self.batches if batch.start_ns]
            total["duration_ns"] = max(ends) - min(starts)
        return total

    def stats(self) -> dict[str, Any]:
        """How it went. The profiler's own CPU time, memory and output are left 0: only its owner can tell."""
        stats = statistics.finished(self.total(), self.since_ns)
        processes = self.by_number()
        if len(processes) > 1:
            stats["processes"] = [statistics.finished(part, self.since_ns) for part in processes.values()]
        return stats

    def profile(self, command: str) -> Profile:
        """The profile, with `command` and the summary among its comments."""
        from remoteprof.profile.build import build

        profile = build(self.batches, self.options.rate, self.modules, self.names, self.options.native_all)
        profile.notes = list(dict.fromkeys([*profile.notes, *self.notes]))
        profile.stats = self.stats()
        profile.comments = [f"command: {command}", *self._facts(), *statistics.summary(profile.stats), *profile.notes]
        if self.options.nonblocking:
            lost = profile.stats["unreadable"] / max(1, profile.stats["samples"])
            profile.notes.append(f"{BIASED}; {lost:.1%} of the looks met a stack on the move and say nothing")
            profile.comments.append(profile.notes[-1])
        return profile

    def _facts(self) -> list[str]:
        facts = [f"host: {host()}, {os.cpu_count()} CPUs"]
        for batch in self.batches:
            facts.append(f"target: {batch.process} (pid {batch.pid}){', ' if batch.runtime else ''}{batch.runtime}")
        return list(dict.fromkeys(facts))
