"""What must hold between the windows of a recording, their files, and the whole."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from support import pprof, stats

SUMS = (
    "ticks",
    "thread_ticks",
    "samples",
    "complete",
    "truncated",
    "unreadable",
    "gone",
    "missed_ticks",
    "pending_ticks",
    "cpu_ns_sampled",
    "cpu_ns_process",
    "unseen_cpu_ns",
    "unsampled_cpu_ns",
    "output_bytes",
    "duration_ns",
)


def faults(whole: dict[str, Any], directory: Path) -> list[str]:
    """Broken identities: of the whole, of each window and its file, and between them."""
    windows = whole["windows"]
    found = stats.faults(whole)
    for name in SUMS:
        total = sum(window[name] for window in windows)
        if whole[name] != total:
            found.append(f"{name}: {whole[name]}, its windows {total}")
    for kind in ("hits", "misses"):
        for cache, counts in whole["caches"].items():
            if counts[kind] != sum(window["caches"].get(cache, {kind: 0})[kind] for window in windows):
                found.append(f"{kind} of {cache}")
    for before, after in pairwise(windows):
        if before["start_ns"] + before["duration_ns"] != after["start_ns"]:
            found.append(f"a gap before {after['start_ns']}")
    for window in windows:
        if window["path"] is None:
            found += [f"a window without a file has {window['ticks']} ticks"] if window["ticks"] else []
        elif "removed" not in window:
            path = directory / window["path"]
            found += stats.faults(window, pprof.load(path))
            if path.stat().st_size != window["output_bytes"]:
                found.append(f"the size of {path}")
    return found


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.endswith(".pb.gz"))
