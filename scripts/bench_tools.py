"""The profilers that bench_run.py compares: how each is run, and its result as stacks that can be judged alike."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from support import pprof
from support.pprof import Frame

BIN = Path(sys.executable).parent
TARGET_CORE, TOOL_CORE = 0, 1
STARTED = 1.5
"""Seconds that a tool is left to start."""
ENDLESS = 3600
"""Seconds of a recording that is ended by SIGINT."""


@dataclass
class Stack:
    """Frames root first, and what they stand for: samples, and CPU time (samples where a tool has none)."""

    frames: list[Frame]
    samples: float
    cpu: float
    cut: bool = False
    """The tool says that it is not whole."""


@dataclass
class Run:
    """One recording by one tool."""

    samples: int
    cpu_seconds: float
    wall_seconds: float
    peak_rss: int
    stacks: list[Stack] = field(default_factory=list)
    first_sample_ms: float = 0.0
    pause_p50_us: float = 0.0
    pause_p99_us: float = 0.0


def run_tool(command: list[str], output: Path | None = None) -> resource.struct_rusage:
    """Runs a command, its stdout to `output`, and gives what the kernel says of all its processes. Raises SystemExit if
    it fails."""
    with (output or Path(os.devnull)).open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.PIPE)
    with process:
        assert process.stderr is not None
        errors = process.stderr.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"failed ({process.returncode}): {' '.join(command)}\n{errors}")
    return usage


@dataclass(frozen=True)
class Tool:
    name: str
    options: tuple[str, ...] = ()

    @property
    def ours(self) -> bool:
        return self.name.startswith("remoteprof")

    @property
    def native(self) -> bool:
        """Whether it shows native frames."""
        return self.name == "remoteprof" or "--native" in self.options

    def command(self, pid: int, rate: int, seconds: float, output: Path) -> list[str]:
        pinned = ["taskset", "-c", str(TOOL_CORE)]
        if self.ours:
            stats = output.with_suffix(".json")
            places = ["-o", str(output), "--stats", str(stats), "-q"]
            return [
                *pinned,
                str(BIN / "remoteprof"),
                "attach",
                str(pid),
                "-r",
                str(rate),
                "-d",
                f"{seconds}s",
                *places,
                *self.options,
            ]
        base = [
            *pinned,
            str(BIN / "py-spy"),
            "record",
            "--pid",
            str(pid),
            "--rate",
            str(rate),
            "--duration",
            str(int(seconds)),
        ]
        return [*base, "--format", "raw", "--output", str(output), *self.options]

    def record(self, pid: int, rate: int, seconds: float, directory: Path) -> Run:
        """Record and wait; the CPU time and memory are those of all processes of the tool, from the kernel."""
        output = directory / f"{self.name.replace(' ', '')}.{'pb.gz' if self.ours else 'raw'}"
        output.unlink(missing_ok=True)
        began = time.monotonic()
        usage = run_tool(self.command(pid, rate, seconds, output))
        run = Run(0, usage.ru_utime + usage.ru_stime, time.monotonic() - began, usage.ru_maxrss * 1024)
        if self.ours:
            stats = json.loads(output.with_suffix(".json").read_text(encoding="utf-8"))
            run.samples = stats["samples"] + stats["pending_ticks"]
            run.peak_rss = stats["profiler_peak_rss_bytes"]
            run.first_sample_ms = stats["first_sample_ms"]
            run.pause_p50_us, run.pause_p99_us = stats["pause_us"]["p50"], stats["pause_us"]["p99"]
            for sample in pprof.load(output).samples:
                if sample.values["samples"]:
                    cut = any(frame.name.startswith(("[truncated]", "[unreadable")) for frame in sample.frames)
                    run.stacks.append(Stack(sample.python(), sample.values["samples"], sample.values["cpu"], cut))
        else:
            run.stacks = list(raw_stacks(output))
            run.samples = int(sum(stack.samples for stack in run.stacks))
        return run


@contextlib.contextmanager
def recorder(tool: Tool, pid: int, rate: int, output: Path, started: float = STARTED) -> Iterator[int]:
    """The pid of a tool that has recorded the process for `started` seconds, and does so until the end."""
    command = tool.command(pid, rate, ENDLESS, output)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(started)
        try:
            yield process.pid
        finally:
            process.send_signal(signal.SIGINT)


def pin(pid: int) -> None:
    """Leaves all threads of a target its one core."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {TARGET_CORE})


def processes(pid: int) -> list[psutil.Process]:
    """All of a tool's."""
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def core_percent(pid: int, seconds: float) -> float:
    """The share of one core that a tool's processes take in the time to come."""

    def cpu() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes(pid))

    before, began = cpu(), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu() - before) / (time.monotonic() - began)


def middle(values: list[float]) -> dict[str, float]:
    """The median, and the middle half; of too few values none."""
    if len(values) < 2:
        return dict.fromkeys(("median", "low", "high"), math.nan)
    low, median, high = statistics.quantiles(values, n=4)
    return {"median": median, "low": low, "high": high}


def middle_text(values: dict[str, float], form: str) -> str:
    """For people."""
    return f"{values['median']:{form}} ({values['low']:{form}} to {values['high']:{form}})"


def raw_stacks(path: Path) -> Iterator[Stack]:
    """py-spy's raw format: `function (file:line);… COUNT`, root first."""
    for line in path.read_text(encoding="utf-8").splitlines():
        stack, _, count = line.rpartition(" ")
        frames = []
        for part in stack.split(";"):
            found = re.fullmatch(r"(.*) \((.*?)(?::(\d+))?\)", part)
            if found:
                name = found[1].rpartition(".")[2]
                frames.append(Frame(name, found[1], found[2], int(found[3] or 0), 0, 0))
            elif not part.startswith(("process ", "thread ")):
                frames.append(Frame(part, part, "", 0, 0, 0))
        yield Stack(frames, float(count), float(count))


TOOLS = (
    Tool("remoteprof --no-native", ("--no-native",)),
    Tool("remoteprof"),
    Tool("remoteprof --nonblocking", ("--nonblocking",)),
    Tool("py-spy"),
    Tool("py-spy --native", ("--native",)),
    Tool("py-spy --nonblocking", ("--nonblocking",)),
)
