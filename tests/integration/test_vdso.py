"""Time functions: the vDSO's samples name the vDSO function and who called it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support import builds, cli, stats
from support.targets import TARGETS, started

SECONDS = 10 if cli.LONG else 2
WAYS = ("clock_gettime", "gettimeofday", "time", "getcpu")


def program(language: str) -> Path:
    """The time loop, in C or Rust."""
    source = TARGETS / "native" / ("clocks.rs" if language == "rust" else "clocks.c")
    command = {
        "c": ["gcc", "-O2", "-g"],
        "static": ["gcc", "-O2", "-g", "-static-pie"],
        "rust": [builds.rustc(), "--edition=2021", "-O", "-g"],
    }[language]
    return builds.kept(
        f"clocks-{language}",
        [source],
        command,
        lambda out: builds.run(*command, source, "-o", out),
    )


@pytest.mark.parametrize("language", ("c", "static", "rust"))
def test_time_loops(language: str, tmp_path: Path) -> None:
    with started([program(language)]) as target:
        recording = cli.attach(target.pid, tmp_path, SECONDS, 1000)
    numbers, profile = recording.stats, recording.profile
    assert stats.faults(numbers, profile) == []
    assert numbers["complete"] >= 0.999 * numbers["samples"], numbers["cut"]
    message = profile.message
    text = [string.decode() for string in message.string_table]
    vdso = [mapping for mapping in message.mapping if text[mapping.filename] == "[vdso]"]
    assert len(vdso) == 1 and len(text[vdso[0].build_id]) == 40
    seen = set()
    inside = total = 0
    for sample in profile.samples:
        count = sample.values["samples"]
        total += count
        leaf = sample.frames[-1]
        if not count or not vdso[0].memory_start <= leaf.address < vdso[0].memory_limit:
            continue
        inside += count
        names = [frame.qualified.rpartition("::")[2] for frame in sample.frames]
        way = next((way for way in WAYS if f"in_{way}" in names), "")
        assert way, f"a caller is missing: {names}"
        assert re.fullmatch(rf"(__vdso_)?({way})", leaf.qualified), names
        seen.add(way)
    assert inside > 0.3 * total, "the loop is mostly in the vDSO"
    # Where getcpu is one instruction (rdpid), few samples or none are inside of it.
    assert seen >= {"clock_gettime", "gettimeofday", "time"}
    top = subprocess.run(
        ["go", "tool", "pprof", "-top", "-nodefraction=0", "-edgefraction=0", "-sample_index=samples", recording.path],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = [line.split(None, 5)[5] for line in top.splitlines() if re.match(r"^\s*\d.*%", line)]
    assert len(rows) >= 5, top
    for row in rows:
        assert "_ExternalCode" not in row and not re.match(r"^(0x|\[|<unknown|[0-9a-f]{8,}$)", row), top
    if language == "c":
        assert any(row.startswith("clock_gettime") for row in rows), top
