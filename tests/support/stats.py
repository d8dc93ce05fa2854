"""What must hold between the numbers of a recording, and between them and its profile."""

from __future__ import annotations

from typing import Any

from support.pprof import Profile

FIELDS = [
    "pid",
    "duration_ns",
    "rate_hz",
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
    "caches",
    "pause_us",
    "profiler_cpu_ns",
    "profiler_peak_rss_bytes",
    "first_sample_ms",
    "attached_ms",
    "output_bytes",
    "unsampled_cpu_ns",
]


def faults(stats: dict[str, Any], profile: Profile | None = None) -> list[str]:
    """Every broken identity, as text."""
    found = [f"no field {name}" for name in FIELDS if name not in stats]
    if found:
        return found

    def equal(text: str, left: int, right: int) -> None:
        if left != right:
            found.append(f"{text}: {left} != {right}")

    whole = stats["samples"] + stats["gone"] + stats["pending_ticks"] + stats["missed_ticks"]
    equal("samples + gone + pending_ticks + missed_ticks = thread_ticks", whole, stats["thread_ticks"])
    equal(
        "samples = complete + truncated + unreadable",
        stats["samples"],
        stats["complete"] + stats["truncated"] + stats["unreadable"],
    )
    equal(
        "unseen_cpu_ns = cpu_ns_process - cpu_ns_sampled",
        stats["unseen_cpu_ns"],
        stats["cpu_ns_process"] - stats["cpu_ns_sampled"],
    )
    equal("what cut stacks short = truncated", sum(stats["cut"].values()), stats["truncated"])
    pause = stats["pause_us"]
    if pause["count"] and not pause["p50"] <= pause["p99"] <= pause["max"]:
        found.append(f"pause percentiles out of order: {pause}")
    if pause["total"] < pause["max"]:
        found.append(f"total pause below the longest: {pause}")
    for name, value in stats.items():
        if isinstance(value, int | float) and value < 0 and name != "unseen_cpu_ns":
            found.append(f"{name} is negative: {value}")
    if profile is not None:
        equal(
            "the samples column = samples + pending_ticks",
            profile.total("samples"),
            stats["samples"] + stats["pending_ticks"],
        )
        # What processes used that were never sampled is shown by name, and is part of what was not seen.
        of_others = (sample for sample in profile.samples if sample.frames[0].qualified.startswith("[unsampled: "))
        shown = sum(sample.values["cpu"] for sample in of_others)
        equal("the cpu column = cpu_ns_sampled + [unsampled: …]", profile.total("cpu") - shown, stats["cpu_ns_sampled"])
        equal("[unsampled: …] = unsampled_cpu_ns", shown, stats["unsampled_cpu_ns"])
        equal("profile duration", profile.duration_ns, stats["duration_ns"])
        stacks = {tuple(sample.frames) for sample in profile.samples if sample.values["samples"]}
        if stats["distinct_stacks"] < len(stacks):
            found.append(f"distinct_stacks is {stats['distinct_stacks']}, the profile has {len(stacks)}")
    return found


def cpu_fault(stats: dict[str, Any]) -> str:
    """The CPU time that the profile shows must be within 1 % of what the kernel counted for the process."""
    sampled, counted = stats["cpu_ns_sampled"], stats["cpu_ns_process"]
    if abs(sampled - counted) > 0.01 * counted:
        return (
            f"cpu_ns_sampled {sampled} is not within 1 % of cpu_ns_process {counted} ({sampled / max(counted, 1):.4f})"
        )
    return ""
