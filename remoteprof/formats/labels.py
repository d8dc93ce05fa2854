"""The labels of a sample for people: its process, its thread, and the rest."""

from __future__ import annotations

from remoteprof.formats.frames import shown
from remoteprof.profile.model import Label, Sample, untimed

PROCESS = "process"
THREAD = "thread"
_PARTS = {"process": 0, "pid": 1, "thread_name": 0, "thread_id": 1}


def facets(labels: tuple[Label, ...]) -> tuple[tuple[str, str], ...]:
    """What samples can be chosen by, as (key, value) sorted by key: `process` and `thread` as "NAME (NUMBER)", every
    other label but the time as it is, a number with its unit."""
    found: dict[str, str] = {}
    process, thread = ["", ""], ["", ""]
    for label in untimed(labels):
        key, value = shown(label.key), shown(_text(label))
        if label.key in ("process", "pid"):
            process[_PARTS[label.key]] = value
        elif label.key in ("thread_name", "thread_id"):
            thread[_PARTS[label.key]] = value
        else:
            found[key] = f"{found[key]}, {value}" if key in found else value
    for key, parts in ((PROCESS, process), (THREAD, thread)):
        if any(parts):
            text = f"{parts[0]} ({parts[1]})" if all(parts) else parts[0] or parts[1]
            found[key] = f"{text}, {found[key]}" if key in found else text
    return tuple(sorted(found.items()))


def _text(label: Label) -> str:
    return label.value if isinstance(label.value, str) else f"{label.value} {label.unit}".rstrip()


def thread_of(sample: Sample) -> str:
    """The thread, with its process where that is named; "" = unknown."""
    found = dict(facets(sample.labels))
    named = any(label.key == "process" for label in sample.labels)
    return " · ".join(part for part in (found.get(PROCESS, "") if named else "", found.get(THREAD, "")) if part)
