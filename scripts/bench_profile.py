"""What handling a large profile takes: 1,000,000 samples over 100,000 distinct stacks of 40 frames. See scripts/bench.

Each step is a process of its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import gzip
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import Any

from support.generated import large

from remoteprof.profile import Profile
from remoteprof.profile.records import Records

STACKS, DEPTH, FUNCTIONS, TURNS = 100_000, 40, 2000, 10
RUNS = 5
"""Times that a step is measured; the median counts."""


def _records(output: Path) -> dict[str, float]:
    """Go's record stream, each stack TURNS times: added, and written as a pprof."""
    draw = random.Random(1)
    code = [0x400000 + 16 * index + 1 for index in range(FUNCTIONS)]
    words = array("Q")
    for _ in range(STACKS):
        words.extend((43, 0, 1, *(draw.choice(code) for _ in range(DEPTH))))
    stream, before = Records(), time.perf_counter()
    stream.add((3, 0, 100))
    for _ in range(TURNS):
        stream.add(words)
    added = time.perf_counter()
    with output.with_suffix(".records").open("wb") as file:
        stream.write(file)
    return {"add_seconds": added - before, "write_seconds": time.perf_counter() - added, "records_peak_bytes": _peak()}


def _save(output: Path) -> dict[str, float]:
    profile = large(STACKS, DEPTH, FUNCTIONS)
    before = time.perf_counter()
    profile.save(output)
    return {"save_seconds": time.perf_counter() - before, "save_peak_bytes": _peak()}


def _load(output: Path) -> dict[str, float]:
    before = time.perf_counter()
    profile = Profile.load(output)
    loaded = time.perf_counter()
    profile.top(50)
    return {"load_seconds": loaded - before, "top_seconds": time.perf_counter() - loaded, "load_peak_bytes": _peak()}


def _page(output: Path) -> dict[str, float]:
    page = output.with_suffix(".html")
    before, profile = time.perf_counter(), Profile.load(output)
    profile.save(page)
    taken = time.perf_counter() - before
    plain = len(gzip.decompress(output.read_bytes()))
    return {"html_seconds": taken, "html_of_pprof": page.stat().st_size / plain}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


STEPS = {step.__name__: step for step in (_records, _save, _load, _page)}


def rows(directory: Path) -> dict[str, Any]:
    """The figure of each step: the median of RUNS."""
    found: dict[str, list[float]] = {}
    for step in STEPS:
        for _ in range(RUNS):
            command = [sys.executable, __file__, step, str(directory / "large.pb.gz")]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            for key, value in json.loads(done.stdout).items():
                found.setdefault(key, []).append(value)
    return {key: statistics.median(values) for key, values in found.items()}


def table(found: dict[str, Any]) -> str:
    """For people."""
    return (
        f"{STACKS * TURNS:,} samples, {STACKS:,} stacks of {DEPTH} frames:\n"
        f"  a record stream: add {found['add_seconds']:.2f} s, write {found['write_seconds']:.2f} s,"
        f" {found['records_peak_bytes'] / 2**20:.0f} MiB\n"
        f"  save {found['save_seconds']:.2f} s, {found['save_peak_bytes'] / 2**20:.0f} MiB\n"
        f"  load {found['load_seconds']:.2f} s, top {found['top_seconds']:.2f} s,"
        f" {found['load_peak_bytes'] / 2**20:.0f} MiB\n"
        f"  HTML {found['html_seconds']:.2f} s, {found['html_of_pprof']:.2f} times the pprof uncompressed"
    )


def main() -> None:
    """One step, in a process of its own; or all."""
    if len(sys.argv) == 3:
        print(json.dumps(STEPS[sys.argv[1]](Path(sys.argv[2]))))
    else:
        with tempfile.TemporaryDirectory(prefix="remoteprof-bench-") as name:
            print(table(rows(Path(name))))


if __name__ == "__main__":
    main()
