"""How a recording went: the numbers of `--stats`, and the summary in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SUMS = (
    "ticks",
    "thread_ticks",
    "samples",
    "distinct_stacks",
    "complete",
    "truncated",
    "unreadable",
    "gone",
    "late_ticks",
    "missed_ticks",
    "pending_ticks",
    "cpu_ns_sampled",
    "cpu_ns_process",
    "unseen_cpu_ns",
    "syscalls_restarted",
)
"""Fields that add up over the processes and windows of a recording, in the order of the object."""


EARLIEST = ("first_sample_ns", "attached_ns")
"""CLOCK_MONOTONIC times, of which the earliest counts; 0 = none."""
MORE_SUMS = ("unmatched", "unsampled_cpu_ns", "collisions", "torn", "told_births")


def add_up(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The sum of the stats of batches, or of such sums. The percentiles of several parts are the largest ones: bounds,
    since a median of all cannot be had from medians. Of what cannot be added up, the first part's value stays."""
    parts = list(parts)
    merged: dict[str, Any] = {
        "pid": next((part["pid"] for part in parts if "pid" in part), 0),
        "duration_ns": max((int(part.get("duration_ns", 0)) for part in parts), default=0),
        "rate_hz": next((part["rate_hz"] for part in parts if "rate_hz" in part), 0),
    }
    for name in SUMS:
        merged[name] = sum(int(part.get(name, 0)) for part in parts)
    merged["unseen_cpu_ns"] = merged["cpu_ns_process"] - merged["cpu_ns_sampled"]
    caches: dict[str, dict[str, int]] = {}
    for part in parts:
        for name, counts in part.get("caches", {}).items():
            cache = caches.setdefault(name, {"hits": 0, "misses": 0})
            for key in cache:
                cache[key] += int(counts.get(key, 0))
    merged["caches"] = caches
    pauses = [part.get("pause_us", {}) for part in parts]
    merged["pause_us"] = {
        "count": sum(pause.get("count", 0) for pause in pauses),
        "p50": max((pause.get("p50", 0) for pause in pauses), default=0),
        "p99": max((pause.get("p99", 0) for pause in pauses), default=0),
        "max": max((pause.get("max", 0) for pause in pauses), default=0),
        "total": sum(pause.get("total", 0) for pause in pauses),
    }
    for name in EARLIEST:
        merged[name] = min((int(part[name]) for part in parts if part.get(name)), default=0)
    merged["unmatched"] = 0
    cut: dict[str, int] = {}
    for part in parts:
        for reason, count in part.get("cut", {}).items():
            cut[reason] = cut.get(reason, 0) + int(count)
    merged["cut"] = cut
    for name in MORE_SUMS:
        merged[name] = sum(int(part.get(name, 0)) for part in parts)
    for part in parts:
        for name, value in part.items():
            merged.setdefault(name, value)
    return merged


def finished(total: dict[str, Any], since_ns: int) -> dict[str, Any]:
    """A sum as the object of `--stats`. `since_ns` (CLOCK_MONOTONIC): what first_sample_ms and attached_ms count from.
    The profiler's own CPU time, memory and output are left 0."""
    stats = {name: total[name] for name in ("pid", "duration_ns", "rate_hz", *SUMS, "caches", "pause_us")}
    stats["profiler_cpu_ns"] = 0
    stats["profiler_peak_rss_bytes"] = 0
    for name, source in (("first_sample_ms", "first_sample_ns"), ("attached_ms", "attached_ns")):
        stats[name] = round((total[source] - since_ns) / 1e6, 3) if total[source] else None
    stats["output_bytes"] = 0
    return stats | {name: value for name, value in total.items() if name not in stats and name not in EARLIEST}


def merge(parts: Iterable[dict[str, Any]], since_ns: int) -> dict[str, Any]:
    """add_up() and finished() in one."""
    return finished(add_up(parts), since_ns)


def duration_text(ns: float) -> str:
    """A duration for people, such as "10.0 s" or "12 ms"."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            value = ns / size
            return (
                f"{value:.2f} {unit}" if value < 10 else f"{value:.1f} {unit}" if value < 100 else f"{value:.0f} {unit}"
            )
    return f"{ns:.0f} ns"


def summary(stats: dict[str, Any]) -> list[str]:
    """How the recording went, as lines for people."""
    pause = stats["pause_us"]
    lines = [
        f"{stats['samples']} samples of {stats['distinct_stacks']} stacks in {duration_text(stats['duration_ns'])} "
        f"at {stats['rate_hz']:g} Hz: {stats['complete']} complete, {stats['truncated']} truncated, "
        f"{stats['unreadable']} unreadable",
        f"{stats['thread_ticks']} thread-ticks: {stats['samples']} sampled, {stats['pending_ticks']} pending, "
        f"{stats['gone']} gone, {stats['missed_ticks']} missed; {stats['late_ticks']} of {stats['ticks']} rounds late",
        f"cpu {duration_text(stats['cpu_ns_sampled'])} sampled of {duration_text(stats['cpu_ns_process'])} used"
        f" ({duration_text(stats['unseen_cpu_ns'])} unseen)",
    ]
    if stats["cut"] or stats["unmatched"]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(stats["cut"].items()))
        lines.append(f"stacks cut short: {reasons or 'none'}; {stats['unmatched']} unmatched")
    if pause["count"]:
        total = duration_text(pause["total"] * 1e3)
        lines.append(
            f"{pause['count']} pauses, {total} in all: p50 {pause['p50']:.0f} µs, p99 {pause['p99']:.0f} µs, "
            f"max {pause['max']:.0f} µs; {stats['syscalls_restarted']} system calls restarted"
        )
    return lines
