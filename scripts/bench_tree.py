"""How much of a core remoteprof takes for a tree of many live processes, each of which works a little now and then."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from bench_tools import Tool, core_percent, recorder
from support.targets import started

PROCESSES, RATE = 200, 100
STARTED = 20.0
"""Seconds in which all are opened."""
SECONDS, TURNS = 3.0, 5
CHILD = """
import time
while True:
    sum(range(20_000))
    time.sleep(0.2)
"""
PROGRAM = f"""
import subprocess, sys
children = [subprocess.Popen([sys.executable, "-S", "-c", {CHILD!r}]) for _ in range({PROCESSES - 1})]
print("ready", flush=True)
try:
    sys.stdin.read()
finally:
    for child in children:
        child.kill()
        child.wait()
"""


def rows(directory: Path) -> dict[str, Any]:
    """Shares in percent of one core: the median of some stretches, and the largest."""
    with started([sys.executable, "-c", PROGRAM]) as target:
        tool = Tool("remoteprof", ("--children",))
        with recorder(tool, target.pid, RATE, directory / "tree.pb.gz", STARTED) as pid:
            shares = [core_percent(pid, SECONDS) for _ in range(TURNS)]
        target.finish()
    return {"median": statistics.median(shares), "max": max(shares)}


def table(found: dict[str, Any]) -> str:
    """For people."""
    shares = f"{found['median']:.1f} % of a core (at most {found['max']:.1f} %)"
    return f"{PROCESSES} processes at {RATE} Hz: {shares}"
