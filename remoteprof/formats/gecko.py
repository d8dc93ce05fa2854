"""gecko: the Firefox Profiler's processed JSON format, for profiler.firefox.com.

The layout is that of version 61 of the Firefox Profiler's src/types/profile.ts; later versions read it too.
"""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any, NamedTuple

from remoteprof import __version__
from remoteprof.formats.frames import default_column, shown, title
from remoteprof.formats.gecko_tables import CATEGORIES, Tables
from remoteprof.profile.model import Profile, Sample, ValueType, time_of
from remoteprof.sinks import Stream

VERSION = 61
GECKO_VERSION = 33
"""The version of the other format, that of Firefox itself; readers want it named."""

_NEVER = 1 << 64

# Units of a profile in milliseconds, which is what weights and times are in.
_MS = {"nanoseconds": 1e6, "microseconds": 1e3, "milliseconds": 1.0, "seconds": 1e-3}


class Thread(NamedTuple):
    """A thread, by its labels, "" = unknown."""

    pid: str
    thread_id: str
    process: str
    name: str


class Row(NamedTuple):
    """A stack of a thread: when it was seen (Unix nanoseconds, 0 = not kept), its number, its value, the length that it
    is drawn with, and its CPU time."""

    time: int
    stack: int
    weight: int
    length: int
    cpu: int


class Columns(NamedTuple):
    """Where the values and lengths of stacks stand, and how much of their unit a millisecond is; `cpu` -1 = nowhere."""

    weight: int
    length: int
    cpu: int
    weight_ms: float
    length_ms: float


def write(profile: Profile, stream: Stream) -> None:
    """Writes the default value type. Raises RemoteprofError for a profile without value types."""
    columns = _columns(profile)
    unit = profile.sample_types[columns.weight].unit
    kind = "tracing-ms" if unit in _MS else "bytes" if unit == "bytes" else "samples"
    tables = Tables()
    threads = [
        _thread(thread, rows, _times(rows, columns, profile.time_ns), kind, columns, index == 0)
        for index, (thread, rows) in enumerate(_rows(profile, tables, columns).items())
    ]
    stream.write(f'{{"meta":{_json(_meta(profile))},"libs":{_json(tables.libs)},"threads":['.encode())
    for index, one in enumerate(threads):
        stream.write(("," * bool(index) + _json(one)).encode())
    stream.write(f'],"shared":{_json(tables.shared())}}}\n'.encode())


def _columns(profile: Profile) -> Columns:
    weight = default_column(profile)
    types = [kind.type for kind in profile.sample_types]
    length = types.index("wall") if "wall" in types else weight
    spent = ValueType("cpu", "nanoseconds")
    cpu = profile.sample_types.index(spent) if spent in profile.sample_types else -1
    scales = (_MS.get(profile.sample_types[column].unit, 1.0) for column in (weight, length))
    return Columns(weight, length, cpu, *scales)


def _rows(profile: Profile, tables: Tables, columns: Columns) -> dict[Thread, list[Row]]:
    """The stacks of each thread, in order of time, those without a time last; of equal time they are added up. Those
    that are nothing but zeros are left out."""
    sums: dict[Thread, dict[tuple[int, int], tuple[int, int, int]]] = {}
    for sample in profile.samples:
        found = sums.setdefault(_thread_of(sample), {})
        key, values = (time_of(sample.labels), tables.stack(sample)), sample.values
        weight, length, cpu = found.get(key, (0, 0, 0))
        spent = max(values[columns.cpu], 0) if columns.cpu >= 0 else 0
        found[key] = (weight + values[columns.weight], length + abs(values[columns.length]), cpu + spent)
    return {
        thread: sorted(
            (Row(*key, *values) for key, values in found.items() if any(values)), key=lambda row: row.time or _NEVER
        )
        for thread, found in sums.items()
    }


def _thread_of(sample: Sample) -> Thread:
    found = {label.key: shown(str(label.value)) for label in sample.labels}
    return Thread(*(found.get(key, "") for key in ("pid", "thread_id", "process", "thread_name")))


def _times(rows: list[Row], columns: Columns, start: int) -> list[float]:
    """When each stack begins and the last one ends, in ms since `start`. Stacks whose time was not kept follow each
    other in order of first sight, each as long as its wall time, or as its value where there is no wall time."""
    timed = [max(row.time - start, 0) / 1e6 for row in rows if row.time]
    lengths = [row.length / columns.length_ms for row in rows if not row.time]
    # The last one seen at a time is drawn as long as it weighs.
    begin = timed[-1] + rows[len(timed) - 1].length / columns.length_ms if timed else 0
    return [*timed, *accumulate(lengths, initial=begin)]


def _thread(
    thread: Thread, rows: list[Row], times: list[float], kind: str, columns: Columns, first: bool
) -> dict[str, Any]:
    # A last sample without a stack: the reader takes a stack to last until the next one, and CPU time to be spent
    # since the one before.
    samples: dict[str, Any] = {
        "stack": [*(row.stack for row in rows), None],
        "time": times,
        "weight": [*(row.weight / columns.weight_ms if columns.weight_ms != 1 else row.weight for row in rows), 0],
        "weightType": kind,
        "length": len(times),
    }
    if columns.cpu >= 0:
        # The CPU time of a sample with a time was spent before it, that of a sum is spent while it is drawn.
        timed = sum(1 for row in rows if row.time)
        spent = [row.cpu for row in rows]
        samples["threadCPUDelta"] = [*spent[:timed], 0, *spent[timed:]]
    return {
        "processType": "default",
        "processStartupTime": 0,
        "processShutdownTime": None,
        "registerTime": 0,
        "unregisterTime": times[-1],
        "pausedRanges": [],
        "name": thread.name or (f"thread {thread.thread_id}" if thread.thread_id else "all threads"),
        "isMainThread": thread.pid == thread.thread_id if thread.thread_id else first,
        "processName": thread.process or (f"process {thread.pid}" if thread.pid else "process"),
        "pid": thread.pid or "0",
        "tid": thread.thread_id or "0",
        "samples": samples,
        "markers": {"data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": [], "length": 0},
    }


def _meta(profile: Profile) -> dict[str, Any]:
    period = profile.period / _MS[profile.period_type.unit] if profile.period_type.unit in _MS else 0
    comments = [
        {"label": f"Comment {number}", "format": "string", "value": shown(comment)}
        for number, comment in enumerate(profile.comments, 1)
    ]
    return {
        "version": GECKO_VERSION,
        "preprocessedProfileVersion": VERSION,
        "interval": period or 1,
        "startTime": profile.time_ns / 1e6,
        "processType": 0,
        "product": title(profile),
        "importedFrom": f"remoteprof {__version__}",
        "stackwalk": 1,
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
        "categories": [{"name": name, "color": color, "subcategories": ["Other"]} for name, color in CATEGORIES],
        "markerSchema": [],
        "symbolicated": True,
        "symbolicationNotSupported": True,
        "usesOnlyOneStackType": True,
        "sourceCodeIsNotOnSearchfox": True,
        "extra": [{"label": "Profile", "entries": comments}] if comments else [],
    }


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
