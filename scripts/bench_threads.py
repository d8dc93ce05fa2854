"""remoteprof beside py-spy on a program of very many threads, nearly all asleep: how much of a core the profiler takes,
and what the program loses."""

from __future__ import annotations

import functools
import os
import signal
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import bench_lost
import psutil
from bench_tools import TARGET_CORE, TOOLS
from support.targets import started

IDLE, BUSY = 1000, 4
RATE = 100
TURNS = 5
"""Times that each tool is measured, by turns."""
SWITCHES = 20
"""Times in each turn that what the program loses is measured."""
SECONDS = 3.0
"""How long its share of a core is measured each time."""
STARTED = 1.5
"""Seconds that are left to a tool to start."""
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


def _rounds(shared: Path) -> int:
    return sum(struct.unpack(f"{BUSY}Q", shared.read_bytes()))


def cpu(pid: int) -> float:
    """CPU seconds of a tool's processes so far."""
    tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in tree)


def rows(directory: Path) -> list[dict[str, Any]]:
    """A row for each tool: the medians of its turns. Shares in percent of one core."""
    shared = directory / "rounds"
    shared.write_bytes(bytes(8 * BUSY))
    tools = [tool for tool in TOOLS if "--nonblocking" not in tool.options]
    shares: dict[str, list[float]] = {tool.name: [] for tool in tools}
    lost: dict[str, list[float]] = {tool.name: [] for tool in tools}
    with started([sys.executable, "-c", PROGRAM, shared, str(IDLE), str(BUSY)]) as target:
        for task in Path(f"/proc/{target.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {TARGET_CORE})
        for _ in range(TURNS):
            for tool in tools:
                command = tool.command(target.pid, RATE, 600, directory / "threads.out.pb.gz")
                with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                    time.sleep(STARTED)
                    before, began = cpu(process.pid), time.monotonic()
                    time.sleep(SECONDS)
                    shares[tool.name].append(100 * (cpu(process.pid) - before) / (time.monotonic() - began))
                    lost[tool.name] += bench_lost.lost(
                        process.pid, target.pid, functools.partial(_rounds, shared), SWITCHES
                    )
                    process.send_signal(signal.SIGINT)
                    process.wait()
    return [
        {
            "tool": tool.name,
            "core_percent": statistics.median(shares[tool.name]),
            "slowdown_percent": bench_lost.middle(lost[tool.name]),
        }
        for tool in tools
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """For people."""
    lines = [f"{f'{IDLE} idle, {BUSY} busy threads':>28}  % of a core  slowdown % (middle half)"]
    for row in rows:
        lost = bench_lost.text(row["slowdown_percent"], ".1f")
        lines.append(f"{row['tool']:>28}  {row['core_percent']:11.1f}  {lost}")
    return "\n".join(lines)
