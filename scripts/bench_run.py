"""Measures remoteprof side by side with py-spy and perf: see scripts/bench.

The target has one core, the tool another. Every figure of all tools is taken in one run, in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench_go
import bench_lost
import bench_native
import bench_profile
import bench_threads
import bench_tree
from bench_tools import TOOLS, Tool, middle, pin, processes, recorder
from support import legal
from support.targets import program, started

RATES = (100, 1000)
SHORT, LONG = 3, 9
"""Seconds of the two recordings whose difference gives the cost of a sample."""
TURNS = bench_lost.TURNS
"""Times that each tool's slowdown is measured."""
COUNTER = """
import mmap, os, struct, sys
with open(sys.argv[1], 'r+b') as file:
    shared = mmap.mmap(file.fileno(), 8)
def leaf(value):
    for step in range(200):
        value = (value * 31 + step) & 0xFFFFF
    return value
def deep(depth, value):
    return deep(depth - 1, value) if depth else leaf(value)
count = 0
print('ready', flush=True)
while True:
    deep(30, count)
    count += 1
    struct.pack_into('Q', shared, 0, count)
"""


@contextlib.contextmanager
def counter(directory: Path) -> Iterator[tuple[int, Path]]:
    """A busy target, 30 frames deep, that counts its rounds in a shared file."""
    shared = bench_lost.counters(directory / "counter")
    with started([sys.executable, "-c", COUNTER, shared]) as target:
        pin(target.pid)
        yield target.pid, shared


def costs(tool: Tool, rate: int, directory: Path) -> dict[str, Any]:
    """Samples, CPU for each, memory, and start-up."""
    with counter(directory) as (pid, _):
        short = tool.record(pid, rate, SHORT, directory)
        long = tool.record(pid, rate, LONG, directory)
    gained = long.samples - short.samples
    marginal = (long.cpu_seconds - short.cpu_seconds) / gained if gained > 0 else float("nan")
    return {
        "samples_per_second": long.samples / LONG,
        "cpu_us_per_sample": marginal * 1e6,
        "startup_cpu_s": max(0.0, short.cpu_seconds - marginal * short.samples),
        "besides_duration_s": long.wall_seconds - LONG,
        "first_sample_ms": long.first_sample_ms,
        "peak_rss_bytes": long.peak_rss,
        "pause_p50_us": long.pause_p50_us,
        "pause_p99_us": long.pause_p99_us,
    }


def slowdowns(rate: int, directory: Path) -> dict[str, float]:
    """How much slower the target is under each tool, in percent: medians."""
    lost = {}
    with counter(directory) as (pid, shared):
        for tool in TOOLS:
            with recorder(tool, pid, rate, directory / "slow.pb.gz") as recording:
                lost[tool.name] = middle(bench_lost.lost(recording, pid, shared, TURNS))["median"]
    return lost


def wrong_stacks(tool: Tool, rate: int, directory: Path) -> dict[str, float]:
    """The shares of samples, in percent, that the generated program could not have had, and that say they are cut."""
    table = legal.generate(directory / "generated.py")
    with started([sys.executable, table.path]) as target:
        pin(target.pid)
        run = tool.record(target.pid, rate, 5, directory)
    cut = sum(stack.samples for stack in run.stacks if stack.cut)
    wrong = 0.0
    for stack in run.stacks:
        # Of the native frames each tool shows its own choice; the calls of Python are what can be judged.
        python = [frame for frame in stack.frames if frame.file.endswith(".py")] if tool.native else stack.frames
        if not stack.cut and (not python or legal.fault(table, python)):
            wrong += stack.samples
    whole = sum(stack.samples for stack in run.stacks) or float("nan")
    return {"wrong_percent": 100 * wrong / whole, "cut_percent": 100 * cut / whole, "oracle_samples": run.samples}


def share_error(tool: Tool, rate: int, directory: Path) -> float:
    """The largest distance of a function's share of CPU time from the truth, in points."""
    with started(program("split.py")) as target:
        pin(target.pid)
        run = tool.record(target.pid, rate, 8, directory)
        measured = json.loads(target.terminate())
    total = sum(stack.cpu for stack in run.stacks)
    error = 0.0
    for name in ("half", "third", "seventh", "rest"):
        with_it = (stack.cpu for stack in run.stacks if any(frame.name == name for frame in stack.frames))
        share = sum(with_it) / total
        error = max(error, abs(share - measured["spent"][name] / measured["total"]))
    return 100 * error


def memory_over_time(directory: Path, minutes: float) -> dict[str, Any]:
    """The resident memory of remoteprof's processes at 1 kHz on the same code."""
    series = []
    with counter(directory) as (pid, _), recorder(TOOLS[0], pid, 1000, directory / "long.pb.gz") as recording:
        began = time.monotonic()
        while time.monotonic() - began < minutes * 60:
            time.sleep(5)
            rss = sum(process.memory_info().rss for process in processes(recording))
            series.append((round(time.monotonic() - began), rss))
    settled = [rss for when, rss in series if when >= min(30, minutes * 30)]
    return {"series": series, "growth_bytes": settled[-1] - settled[0], "peak_bytes": max(settled)}


COLUMNS = (
    ("samples/s", "samples_per_second", "{:.0f}"),
    ("CPU µs/sample", "cpu_us_per_sample", "{:.1f}"),
    ("slowdown %", "slowdown_percent", "{:.1f}"),
    ("wrong %", "wrong_percent", "{:.2f}"),
    ("cut %", "cut_percent", "{:.2f}"),
    ("share error", "share_error_points", "{:.2f}"),
    ("peak MiB", "peak_rss_bytes", "{:.0f}"),
    ("start-up CPU s", "startup_cpu_s", "{:.2f}"),
    ("first ms", "first_sample_ms", "{:.0f}"),
    ("besides s", "besides_duration_s", "{:.2f}"),
    ("pause p50/p99 µs", "pause", "{}"),
)


def table(rows: list[dict[str, Any]]) -> str:
    lines = [["tool", "Hz", *(title for title, _, _ in COLUMNS)]]
    for row in rows:
        cells = [row["tool"], str(row["rate"])]
        for _, key, form in COLUMNS:
            value = row.get(key)
            if key == "peak_rss_bytes":
                value = row[key] / 2**20
            if key == "pause":
                value = f"{row['pause_p50_us']:.0f}/{row['pause_p99_us']:.0f}" if row["pause_p50_us"] else "-"
            if key == "first_sample_ms" and not value:
                cells.append("-")
            else:
                cells.append(form.format(value))
        lines.append(cells)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="also memory over ten minutes")
    parser.add_argument("--quick", action="store_true", help="few turns of slowdowns, 1,000 Hz only")
    parser.add_argument("-o", "--output", default=".cache/bench.json", type=Path)
    given = parser.parse_args()
    global TURNS
    rates: tuple[int, ...] = RATES
    if given.quick:
        TURNS, rates = 10, (1000,)
    if (os.cpu_count() or 1) < 2:
        sys.exit("error: two cores are needed: one for the target, one for the tool")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="remoteprof-bench-") as name:
        directory = Path(name)
        for rate in rates:
            lost = slowdowns(rate, directory)
            for tool in TOOLS:
                row: dict[str, Any] = {"tool": tool.name, "rate": rate, "slowdown_percent": lost[tool.name]}
                row |= costs(tool, rate, directory)
                row |= wrong_stacks(tool, rate, directory)
                row["share_error_points"] = share_error(tool, rate, directory)
                rows.append(row)
                print(f"{tool.name} at {rate} Hz: done", file=sys.stderr)
        result: dict[str, Any] = {"python": sys.version.split()[0], "load": os.getloadavg(), "rows": rows}
        result["native"] = bench_native.rows(directory)
        result["threads"] = bench_threads.rows(directory)
        result["tree"] = bench_tree.rows(directory)
        result["go"] = bench_go.rows(directory)
        result["profile"] = bench_profile.rows(directory)
        if given.long:
            result["memory"] = memory_over_time(directory, 10)
    print(table(rows))
    print(bench_native.table(result["native"]))
    print(bench_threads.table(result["threads"]))
    print(bench_tree.table(result["tree"]))
    print(bench_go.table(result["go"]))
    print(bench_profile.table(result["profile"]))
    if given.long:
        print(f"memory over ten minutes: {result['memory']['growth_bytes'] / 2**20:+.2f} MiB")
    given.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written: {given.output}")


if __name__ == "__main__":
    main()
