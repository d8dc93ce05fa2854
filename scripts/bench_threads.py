"""remoteprof beside py-spy on a program of very many threads, nearly all asleep: how much of a core the profiler takes,
and what the program loses."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import bench_lost
from bench_tools import TOOLS, core_percent, middle, middle_text, pin, recorder
from support.targets import started

IDLE, BUSY = 1000, 4
RATE = 100
TURNS = 5
"""Times that each tool is measured, by turns."""
SWITCHES = 20
"""Times in each turn that what the program loses is measured."""
SECONDS = 3.0
"""How long its share of a core is measured each time."""
PROGRAM = """
import mmap, struct, sys, threading
with open(sys.argv[1], "r+b") as file:
    shared = mmap.mmap(file.fileno(), 8 * int(sys.argv[3]))
gate = threading.Event()
def idle():
    gate.wait()
def busy(place):
    count, value = 0, 1
    while True:
        for step in range(500):
            value = (value * 31 + step) & 0xFFFFF
        count += 1
        struct.pack_into("Q", shared, 8 * place, count)
for _ in range(int(sys.argv[2])):
    threading.Thread(target=idle, daemon=True).start()
for place in range(int(sys.argv[3])):
    threading.Thread(target=busy, args=(place,), daemon=True).start()
print("ready", flush=True)
gate.wait()
"""


def rows(directory: Path) -> list[dict[str, Any]]:
    """A row for each tool: the medians of its turns. Shares in percent of one core."""
    shared = bench_lost.counters(directory / "rounds", BUSY)
    tools = [tool for tool in TOOLS if "--nonblocking" not in tool.options]
    shares: dict[str, list[float]] = {tool.name: [] for tool in tools}
    lost: dict[str, list[float]] = {tool.name: [] for tool in tools}
    with started([sys.executable, "-c", PROGRAM, shared, str(IDLE), str(BUSY)]) as target:
        pin(target.pid)
        for _ in range(TURNS):
            for tool in tools:
                with recorder(tool, target.pid, RATE, directory / "threads.pb.gz") as pid:
                    shares[tool.name].append(core_percent(pid, SECONDS))
                    lost[tool.name] += bench_lost.lost(pid, target.pid, shared, SWITCHES)
    return [
        {
            "tool": tool.name,
            "core_percent": statistics.median(shares[tool.name]),
            "slowdown_percent": middle(lost[tool.name]),
        }
        for tool in tools
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """For people."""
    lines = [f"{f'{IDLE} idle, {BUSY} busy threads':>28}  % of a core  slowdown % (middle half)"]
    for row in rows:
        lost = middle_text(row["slowdown_percent"], ".1f")
        lines.append(f"{row['tool']:>28}  {row['core_percent']:11.1f}  {lost}")
    return "\n".join(lines)
