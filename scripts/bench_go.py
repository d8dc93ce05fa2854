"""remoteprof on Go programs at 1 kHz: what a busy one loses, how long the requests of a server wait, and what a sample
costs beside one of Go's own profiler. Everything is measured in pairs, with and without, by turns."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_lost
from bench_tools import TARGET_CORE, TOOL_CORE, Tool, middle, middle_text, pin, recorder, run_tool
from support import pprof
from support.gobuild import build
from support.targets import Running, started

OURS = Tool("remoteprof")
RATE = 1000
PAIRS = 10
WINDOW = 3.0
"""Seconds of one half of a pair."""
ROUNDS = 800_000
"""Of Go's own profiler's half: some seconds of CPU time."""
CLIENTS, PAUSE = 4, "2ms"


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
    shared = bench_lost.counters(directory / "rounds")
    with started([program, "count", shared]) as target:
        pin(target.pid)
        with recorder(OURS, target.pid, RATE, directory / "slow.pb.gz") as pid:
            return middle(bench_lost.lost(pid, target.pid, shared))


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

        def recorded() -> float:
            with recorder(OURS, server.pid, RATE, directory / "late.pb.gz"):
                return p99(load)

        pairs = _pairs(functools.partial(p99, load), recorded)
    return {
        "alone_us": middle([alone for alone, _ in pairs]),
        "recorded_us": middle([recorded for _, recorded in pairs]),
        "quotient": middle([recorded / alone for alone, recorded in pairs]),
    }


def our_cost(program: Path, directory: Path) -> float:
    """Our CPU time for a sample of the busy program, microseconds: what a longer recording takes more."""
    shared = directory / "rounds"
    with started([program, "count", shared]) as target:
        pin(target.pid)
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
    return middle([1e6 * (more - alone) / samples for alone, more in pairs])


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
            f"Go at {RATE} Hz: medians (middle halves) of {PAIRS} pairs, of {bench_lost.TURNS} for the slowdown",
            f"  slowdown %               {middle_text(found['slowdown_percent'], '.2f')}",
            f"  p99 of requests, alone   {middle_text(p99['alone_us'], '.0f')} µs",
            f"  p99 of requests          {middle_text(p99['recorded_us'], '.0f')} µs",
            f"  the one by the other     {middle_text(p99['quotient'], '.3f')}",
            f"  CPU µs/sample            {found['our_cpu_us_per_sample']:.1f}",
            f"  of runtime/pprof         {middle_text(found['own_cpu_us_per_sample'], '.1f')}",
        ]
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="remoteprof-bench-") as name:
        found = rows(Path(name))
    json.dump(found, sys.stderr, indent=1)
    print(table(found))


if __name__ == "__main__":
    main()
