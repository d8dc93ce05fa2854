"""speedscope: its own JSON format, one sampled profile for each value type, and one for each thread.

The layout is speedscope's published schema, file-format-schema.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from remoteprof import __version__
from remoteprof.errors import RemoteprofError
from remoteprof.formats.frames import Frames, default_column, shown, title
from remoteprof.formats.labels import thread_of
from remoteprof.profile.model import Profile
from remoteprof.sinks import Stream

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
MAX_THREADS = 64
"""Threads that get a profile of their own, the heaviest ones."""

_UNITS = {name: name for name in ("nanoseconds", "microseconds", "milliseconds", "seconds", "bytes")}

Sums = dict[tuple[int, ...], int]


def write(profile: Profile, stream: Stream) -> None:
    """Writes a profile for each value type, the default one shown first; then, where there are several threads, one for
    each in the default type. Raises RemoteprofError for negative values, which speedscope refuses."""
    default = default_column(profile)
    frames = Frames()
    columns: list[Sums] = [{} for _ in profile.sample_types]
    threads: dict[str, Sums] = {}
    for sample in profile.samples:
        stack = frames.stack(sample)
        for sums, value in zip(columns, sample.values, strict=True):
            sums[stack] = sums.get(stack, 0) + value
        of_thread = threads.setdefault(thread_of(sample), {})
        of_thread[stack] = of_thread.get(stack, 0) + sample.values[default]
    units = [_UNITS.get(kind.unit, "none") for kind in profile.sample_types]
    names = [shown(kind.type) or "value" for kind in profile.sample_types]
    profiles = [_profile(*one) for one in zip(names, units, columns, strict=True)]
    if len(threads) > 1:
        heaviest = sorted(threads.items(), key=lambda thread: (-sum(thread[1].values()), thread[0]))[:MAX_THREADS]
        profiles += [
            _profile(f"{names[default]}: {name or 'no thread'}", units[default], sums) for name, sums in heaviest
        ]
    _write(
        stream,
        [
            ("$schema", SCHEMA),
            ("exporter", f"remoteprof {__version__}"),
            ("name", title(profile)),
            ("activeProfileIndex", default),
            ("shared", {"frames": [_frame(*frame) for frame in frames.known]}),
        ],
        profiles,
    )


def _frame(name: str, file: str, line: int, module: str) -> dict[str, Any]:
    frame: dict[str, Any] = {"name": name}
    if file or module:
        frame["file"] = file or module
    if line:
        frame["line"] = line
    return frame


def _profile(name: str, unit: str, sums: Sums) -> dict[str, Any]:
    if any(value < 0 for value in sums.values()):
        raise RemoteprofError(
            "speedscope cannot show negative values", "write a difference as a flame graph (.html) or as pprof (.pb.gz)"
        )
    rows = [(stack, value) for stack, value in sums.items() if value]
    return {
        "type": "sampled",
        "name": name,
        "unit": unit,
        "startValue": 0,
        "endValue": sum(value for _, value in rows),
        "samples": [stack for stack, _ in rows],
        "weights": [value for _, value in rows],
    }


def _write(stream: Stream, head: Iterable[tuple[str, Any]], profiles: list[dict[str, Any]]) -> None:
    # A part at a time: the text of all of it would be many times the size of the profile.
    parts = ",".join(f"{_json(key)}:{_json(value)}" for key, value in head)
    stream.write(f'{{{parts},"profiles":['.encode())
    for index, one in enumerate(profiles):
        stream.write(("," * bool(index) + _json(one)).encode())
    stream.write(b"]}\n")


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
