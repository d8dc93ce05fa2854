"""remoteprof beside perf on a native program whose every caller is known: how many stacks are complete, how many are
wrong, what a sample costs with all that makes names of it, and how much is written."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_tools import BIN, TARGET_CORE, TOOL_CORE, run_tool
from support import builds, native, pprof
from support.pprof import Frame
from support.targets import started

SECONDS = 5
RATE = 1000
BOTTOMS = re.compile(r"^_start$|^_?_?clone3?$")
"""What a complete native stack ends in: the program's entry or a thread's."""
_FRAME = re.compile(r"^\s+[0-9a-f]+ (.+) \((.*)\)$")


@dataclass
class Result:
    """Stacks root first, one for each sample; seconds of CPU time and bytes that it took."""

    stacks: list[list[Frame]]
    cpu_seconds: float
    written: int


def _cpu(command: list[str], output: Path | None = None) -> float:
    """Runs a command and gives the CPU time of all its processes, seconds."""
    usage = run_tool(command, output)
    return usage.ru_utime + usage.ru_stime


def _pin(command: list[str]) -> list[str]:
    return ["taskset", "-c", str(TOOL_CORE), *command]


def remoteprof(pid: int, directory: Path) -> Result:
    output = directory / "native.pb.gz"
    options = ["-r", str(RATE), "-d", f"{SECONDS}s", "-q", "-o", str(output)]
    cpu = _cpu(_pin([str(BIN / "remoteprof"), "attach", str(pid), *options]))
    stacks = []
    for sample in pprof.load(output).samples:
        stacks += [sample.frames] * sample.values["samples"]
    return Result(stacks, cpu, output.stat().st_size)


def perf(pid: int, directory: Path) -> Result:
    raw, text = directory / "perf.data", directory / "perf.txt"
    record = ["perf", "record", "-q", "-F", str(RATE), "--call-graph", "dwarf", "-p", str(pid), "-o", str(raw)]
    cpu = _cpu(_pin([*record, "--", "sleep", str(SECONDS)]))
    # Inlined calls take perf minutes: left out, in its favour.
    cpu += _cpu(_pin(["perf", "script", "--no-inline", "-F", "ip,sym,dso", "-i", str(raw)]), text)
    stacks: list[list[Frame]] = []
    stack: list[Frame] = []
    for line in text.read_text(encoding="utf-8", errors="replace").splitlines():
        found = _FRAME.match(line)
        if found:
            name = found[1].split("+0x")[0]
            stack.insert(0, Frame(name, name, "", 0, 0, 0))
        elif stack:
            stacks.append(stack)
            stack = []
    return Result([*stacks, stack] if stack else stacks, cpu, raw.stat().st_size)


def judged(tool: str, result: Result, legal: native.Legal) -> dict[str, Any]:
    """The figures of one recording. Wrong: a stack that ends in a known bottom, or says that it does, and cannot have
    been."""
    verdict = native.Verdict()
    complete = wrong = 0
    for stack in result.stacks:
        plain = [frame for frame in stack if not frame.name.startswith("[")]
        cut = any(frame.name == "[truncated]" or frame.name.startswith("[unreadable") for frame in stack)
        if cut or not plain or not BOTTOMS.match(plain[0].name):
            continue
        complete += 1
        wrong += bool(native.fault(legal, plain, verdict))
    count = max(1, len(result.stacks))
    return {
        "tool": tool,
        "samples": len(result.stacks),
        "complete_percent": 100 * complete / count,
        "wrong_percent": 100 * wrong / count,
        "cpu_us_per_sample": 1e6 * result.cpu_seconds / count,
        "bytes": result.written,
    }


def rows(directory: Path) -> list[dict[str, Any]]:
    """A row for each tool, on one and the same running program."""
    program = builds.build("c", "gcc", "-O2", "-g", "-fomit-frame-pointer")
    found = []
    with started([program.path]) as target:
        os.sched_setaffinity(target.pid, {TARGET_CORE})
        time.sleep(0.5)
        for name, tool in (("remoteprof", remoteprof), ("perf dwarf", perf)):
            found.append(judged(name, tool(target.pid, directory), program.legal))
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """For people."""
    lines = [f"{'native program':>14}  samples  complete %  wrong %  CPU µs/sample  written"]
    for row in rows:
        lines.append(
            f"{row['tool']:>14}  {row['samples']:7}  {row['complete_percent']:10.2f}  {row['wrong_percent']:7.3f}"
            f"  {row['cpu_us_per_sample']:13.1f}  {row['bytes'] / 2**20:.2f} MiB"
        )
    return "\n".join(lines)
