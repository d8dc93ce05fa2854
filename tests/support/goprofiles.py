"""Profiles that Go programs write of themselves, and ours beside them."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from support import pprof
from support.targets import Running, started

Samples = Counter[Any]
"""Stack (root first: function, file, line, first line), labels → values, each under its own key."""


@contextlib.contextmanager
def ready(binary: Path, *arguments: object, **environment: str) -> Iterator[Running]:
    """The program, once it has printed its first line."""
    command = [str(binary), *map(str, arguments)]
    with started(command, env={**os.environ, "GODEBUG": "", **environment}) as running:
        yield running


def told(running: Running, line: str) -> None:
    """Writes a line to the program, which then writes its profiles, and waits for its answer."""
    running.send(f"{line}\n")
    assert running.line() == "written"


def plain(name: str) -> str:
    """A name as Go before 1.21 writes it, without type arguments."""
    return re.sub(r"\[.*\]", "[...]", name)


def samples(profile: pprof.Profile, *, old: bool = False) -> Samples:
    """What a profile holds; samples without any value are left out, as they say nothing. old: written by, or of, a Go
    before 1.21, whose names have no type arguments and whose functions no first line."""
    found: Samples = Counter()
    for sample in profile.samples:
        frames = tuple(
            (
                plain(frame.qualified) if old else frame.qualified,
                frame.file,
                frame.line,
                0 if old else frame.start_line,
            )
            for frame in sample.frames
        )
        for kind, value in sample.values.items():
            if any(sample.values.values()):
                found[frames, tuple(sorted(sample.labels.items())), kind] += value
    return found


def locations(profile: pprof.Profile) -> set[tuple[int, ...]]:
    """The addresses of each stack that has a value, leaf first."""
    addresses = {location.id: location.address for location in profile.message.location}
    return {tuple(addresses[ident] for ident in row.location_id) for row in profile.message.sample if any(row.value)}


def not_between(before: Samples, ours: Samples, after: Samples, keys: Iterable[Any] | None = None) -> str:
    """Values that are not between what the program wrote before and after, for people. keys: which are to be; all, if
    none are given."""
    keys = {**before, **ours, **after} if keys is None else keys
    wrong = [key for key in keys if not before[key] <= ours[key] <= after[key]]
    return "\n".join(f"{before[key]} {ours[key]} {after[key]} {key}" for key in wrong[:5])


def differences(ours: Samples, theirs: Samples) -> str:
    """What only one of two has, for people."""
    lines = []
    for key in [key for key in {**ours, **theirs} if ours[key] != theirs[key]][:6]:
        frames, labels, kind = key
        lines.append(
            f"{kind} {ours[key]} / {theirs[key]} {labels} " + " < ".join(f"{f[0]}:{f[2]}" for f in frames[::-1])
        )
    return "\n".join(lines)
