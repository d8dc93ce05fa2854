"""remoteprof on Go programs at 1 kHz: what a busy one loses, how long the requests of a server wait, and what a sample
costs beside one of Go's own profiler. Everything is measured in pairs, with and without, by turns."""

from __future__ import annotations

import functools
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import bench_lost
from bench_tools import TARGET_CORE, TOOL_CORE, Tool, run_tool
from support import pprof
from support.gobuild import build
from support.targets import Running, started

T = TypeVar("T")

OURS = Tool("remoteprof")
RATE = 1000
PAIRS = 10
WINDOW = 3.0
"""Seconds of one half of a pair."""
STARTED = 1.5
"""Seconds that the recorder is left to start."""
ROUNDS = 800_000
"""Of Go's own profiler's half: some seconds of CPU time."""
CLIENTS, PAUSE = 4, "2ms"


def _pinned(pid: int) -> None:
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {TARGET_CORE})


def _recorded(pid: int, output: Path, measure: Callable[[int], T]) -> T:
    """What is measured while the process is recorded; it is given the recorder's pid."""
    command = OURS.command(pid, RATE, 60, output)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(STARTED)
        found = measure(process.pid)
        process.send_signal(signal.SIGINT)
        process.wait()
    return found


def _pairs(alone: Callable[[], float], other: Callable[[], float]) -> list[tuple[float, float]]:
    """What is measured alone, before and after on the average, and otherwise; by turns."""
    found = []
    before = alone()
    for _ in range(PAIRS):
        during = other()
        after = alone()
        found.append(((before + after) / 2, during))
        before = after
    return found


def slowdown(program: Path, directory: Path) -> dict[str, float]:
    """How much slower a busy program runs while it is recorded, in percent."""
    shared = directory / "rounds"
    shared.write_bytes(bytes(8))

    def rounds() -> int:
        return int(struct.unpack("Q", shared.read_bytes())[0])

    with started([program, "count", shared]) as target:
        _pinned(target.pid)
        found = _recorded(target.pid, directory / "slow.pb.gz", lambda tool: bench_lost.lost(tool, target.pid, rounds))
    return bench_lost.middle(found)


def latency(program: Path, directory: Path) -> dict[str, Any]:
    """The 99th percentile of what requests take, microseconds: alone, recorded, and the quotients of the pairs."""

    def asked(program: Running) -> Any:
        program.send("\n")
        return json.loads(program.line())

    def p99(load: Running) -> float:
        """Of those in one window."""
        asked(load)
        time.sleep(WINDOW)
        told = asked(load)
        assert not told["Failed"], told
        return float(told["P99us"])

    with (
        started(["taskset", "-c", str(TARGET_CORE), program, "serve"]) as server,
        started(
            ["taskset", "-c", str(TOOL_CORE), program, "load", asked(server)["Address"], str(CLIENTS), PAUSE]
        ) as load,
    ):
        p99_alone = functools.partial(p99, load)
        pairs = _pairs(p99_alone, lambda: _recorded(server.pid, directory / "late.pb.gz", lambda _: p99_alone()))
    return {
        "alone_us": bench_lost.middle([alone for alone, _ in pairs]),
        "recorded_us": bench_lost.middle([recorded for _, recorded in pairs]),
        "quotient": bench_lost.middle([recorded / alone for alone, recorded in pairs]),
    }


def our_cost(program: Path, directory: Path) -> float:
    """Our CPU time for a sample of the busy program, microseconds: what a longer recording takes more."""
    shared = directory / "rounds"
    with started([program, "count", shared]) as target:
        _pinned(target.pid)
        short, long = (OURS.record(target.pid, RATE, seconds, directory) for seconds in (3, 13))
    return 1e6 * (long.cpu_seconds - short.cpu_seconds) / (long.samples - short.samples)


def own_cost(program: Path, directory: Path) -> dict[str, float]:
    """The CPU time of Go's own profiler for one of its samples, microseconds: what the same work takes more with it."""
    own = directory / "own.pb.gz"

    def cpu(*profile: str) -> float:
        usage = run_tool(["taskset", "-c", str(TARGET_CORE), str(program), "work", str(ROUNDS), *profile])
        return usage.ru_utime + usage.ru_stime

    pairs = _pairs(cpu, lambda: cpu(str(own)))
    # As many in each run: the work is the same.
    samples = pprof.load(own).total("samples")
    return bench_lost.middle([1e6 * (more - alone) / samples for alone, more in pairs])


def rows(directory: Path) -> dict[str, Any]:
    """All of it."""
    program = build("gobusy")
    return {
        "slowdown_percent": slowdown(program, directory),
        "p99": latency(program, directory),
        "our_cpu_us_per_sample": our_cost(program, directory),
        "own_cpu_us_per_sample": own_cost(program, directory),
    }


def table(found: dict[str, Any]) -> str:
    """For people."""

    p99 = found["p99"]
    return "\n".join(
        [
            f"Go at {RATE} Hz: medians of {PAIRS} pairs, of {bench_lost.TURNS} for the slowdown; (the middle half)",
            f"  slowdown %               {bench_lost.text(found['slowdown_percent'], '.2f')}",
            f"  p99 of requests, alone   {bench_lost.text(p99['alone_us'], '.0f')} µs",
            f"  p99 of requests          {bench_lost.text(p99['recorded_us'], '.0f')} µs",
            f"  the one by the other     {bench_lost.text(p99['quotient'], '.3f')}",
            f"  CPU µs/sample            {found['our_cpu_us_per_sample']:.1f}",
            f"  of runtime/pprof         {bench_lost.text(found['own_cpu_us_per_sample'], '.1f')}",
        ]
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="remoteprof-bench-") as name:
        found = rows(Path(name))
    json.dump(found, sys.stderr, indent=1)
    print(table(found))


if __name__ == "__main__":
    main()
