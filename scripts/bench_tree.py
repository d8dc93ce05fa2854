"""How much of a core remoteprof takes for a tree of many live processes, each of which works a little now and then."""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench_threads import cpu
from bench_tools import Tool
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
        command = Tool("remoteprof", ("--children",)).command(target.pid, RATE, 600, directory / "tree.pb.gz")
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(STARTED)
            shares = []
            for _ in range(TURNS):
                before, began = cpu(process.pid), time.monotonic()
                time.sleep(SECONDS)
                shares.append(100 * (cpu(process.pid) - before) / (time.monotonic() - began))
            process.send_signal(signal.SIGINT)
            process.wait()
        target.finish()
    return {"median": statistics.median(shares), "max": max(shares)}


def table(found: dict[str, Any]) -> str:
    """For people."""
    shares = f"{found['median']:.1f} % of a core (at most {found['max']:.1f} %)"
    return f"{PROCESSES} processes at {RATE} Hz: {shares}"
