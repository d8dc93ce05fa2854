"""remoteprof on Windows, as far as wine shows it: right stacks, true shares, all modules, exit codes, no harm."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from support import bounds, legal, stats, wine
from support.cli import LONG
from support.gotool import go_pprof
from support.targets import TARGETS

from remoteprof.modules import pe

RATE = 500
SECONDS = 4
WANTED = 20_000 if LONG else 1_000
"""Samples of one version."""
ROUNDS = 100 if LONG else 20


@pytest.mark.parametrize("version", wine.VERSIONS)
def test_no_illegal_stack(version: str, tmp_path: Path) -> None:
    table = legal.generate(tmp_path / "generated.py", seed=int(version.replace(".", "")))
    total = legal.Verdict()
    with wine.target(version, table.path) as target:
        for _ in range(ROUNDS):
            recording = wine.attach(version, target.pid, tmp_path, SECONDS, RATE)
            verdict = legal.judge(table, recording.profile)
            assert verdict.illegal == 0, f"{verdict.illegal} of {verdict.samples}: {verdict.reasons.most_common(5)}"
            assert verdict.unreadable == 0, verdict.reasons
            assert verdict.truncated <= max(3, verdict.samples * 0.01), verdict
            assert stats.faults(recording.stats, recording.profile) == []
            total.samples += verdict.samples
            total.depth = max(total.depth, verdict.depth)
            total.functions |= verdict.functions
            if total.samples >= WANTED:
                break
        assert target.running.process.poll() is None
    print(version, total.samples, len(total.functions), recording.stats["pause_us"])
    assert total.samples >= WANTED
    assert total.depth >= 75, "the deep stacks were not seen"
    assert len(total.functions) >= 250, "most functions were never seen"


def test_shares_of_a_known_split(tmp_path: Path) -> None:
    with wine.target(wine.LATEST, TARGETS / "shares.py") as target:
        recording = wine.attach(wine.LATEST, target.pid, tmp_path, 8, 200)
    total = recording.profile.total("cpu")
    heavy, light = (recording.profile.with_function(name, "cpu") for name in ("heavy", "light"))
    assert total > 0
    share = heavy / (heavy + light)
    effective = bounds.effective_samples(recording.profile, "cpu", recording.stats["samples"])
    print(share, effective, (heavy + light) / total)
    assert abs(share - 0.75) <= bounds.allowed_error(0.75, effective, 1)
    assert (heavy + light) / total > 0.9


def test_threads_in_a_dump() -> None:
    with wine.target("3.12", TARGETS / "shares.py") as target:
        result = wine.remoteprof("3.12", "dump", target.pid, "--json")
    assert result.status == 0, result.stderr
    stacks = [[frame["function"] for frame in thread["frames"]] for thread in json.loads(result.stdout)]
    assert any("sleeper" in stack for stack in stacks), stacks
    assert any("main" in stack for stack in stacks), stacks
    assert any(any("lambda" in name for name in stack) for stack in stacks), stacks


def test_modules_are_those_that_windows_enumerates(tmp_path: Path) -> None:
    version = "3.13"
    with wine.target(version, TARGETS / "windows_modules.py", ready="") as target:
        expected = json.loads(target.running.line())
        result = wine.remoteprof(version, "modules", target.pid, "--json")
        recording = wine.attach(version, target.pid, tmp_path, 0.5, 100)
    assert result.status == 0, result.stderr
    found = json.loads(result.stdout)
    assert {(one["start"], one["end"] - one["start"]) for one in found} == {(base, size) for base, size, _ in expected}
    paths = {one["start"]: one["path"].lower() for one in found}
    assert paths == {base: path.lower() for base, _, path in expected}
    assert found[0]["path"].lower() == expected[0][2].lower(), "the program is the first"
    assert {one["offset"] for one in found} == {0}
    # CPython's files have CodeView records: the same GUID and age as pefile reads from them here.
    home = wine.pythons()[version].parent
    ids = {one["path"].rpartition("\\")[2].lower(): one["build_id"] for one in found}
    for name in ("python.exe", "python313.dll"):
        assert re.fullmatch(r"[0-9A-F]{33,}", ids[name]), ids[name]
        assert ids[name] == pe.id_of_file(str(home / name), None)
    assert all(ids.values())
    # The profile has them too, and the reader that profiles are made for opens it.
    message = recording.profile.message
    first = message.mapping[0]
    assert (first.memory_start, first.memory_limit - first.memory_start) == tuple(expected[0][:2])
    assert recording.profile.mappings[0].lower() == expected[0][2].lower()
    assert message.string_table[first.build_id].decode() == ids["python.exe"]
    raw = go_pprof("-raw", "-symbolize=none", recording.path)
    assert ids["python313.dll"] in raw and "python313.dll" in raw


def test_names_lines_and_a_profile_that_pprof_opens(tmp_path: Path) -> None:
    source = tmp_path / "named.py"
    source.write_text(
        "import sys\n"
        "class Outer:\n"
        "    def method(self):\n"
        "        return sys.stdin.read()\n"
        "def größe(value):\n"
        "    return (value\n"
        "            or Outer().method())\n"
        "print('ready', flush=True)\n"
        "größe(0)\n",
        encoding="utf-8",
    )
    for version in ("3.10", "3.14"):
        with wine.target(version, source) as target:
            recording = wine.attach(version, target.pid, tmp_path, 0.5, 100)
        frames = next(sample.python() for sample in recording.profile.samples if sample.python())
        method = "method" if version == "3.10" else "Outer.method"
        assert [frame.qualified for frame in frames[:3]] == ["<module>", "größe", method]
        assert [frame.line for frame in frames[:3]] == [9, 7, 4]
        assert frames[1].file.endswith("named.py")
        top = go_pprof("-top", "-symbolize=none", "-sample_index=wall", recording.path)
        assert "größe" in top


def test_exit_codes(tmp_path: Path) -> None:
    nobody = wine.remoteprof(wine.LATEST, "attach", 0x7FFFFFF0, "-o", wine.path_of(tmp_path / "x.pb.gz"))
    nobody.failed_with(3, "no process with pid")
    wine.remoteprof(wine.LATEST, "dump", 0x7FFFFFF0).failed_with(3)
    wine.remoteprof(wine.LATEST, "modules", 0x7FFFFFF0).failed_with(3)
    wine.remoteprof(wine.LATEST, "attach", "x").failed_with(2)
    wine.remoteprof(wine.LATEST, "goroutines", 1).failed_with(1, "windows")
    assert not (tmp_path / "x.pb.gz").exists()


def test_a_program_without_a_runtime(tmp_path: Path) -> None:
    """wine's own cmd.exe is there, and no Python in it."""
    script = tmp_path / "other.py"
    script.write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen(['cmd.exe', '/k'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
        "child.kill()\n"
    )
    with wine.target(wine.LATEST, script, ready="") as target:
        pid = int(target.running.line())
        time.sleep(1.2)  # older than a program that may still become a Python
        wine.remoteprof(wine.LATEST, "dump", pid, "--no-native").failed_with(5, "not a Python process")
        target.running.finish()


def test_a_target_that_ends_is_a_normal_end(tmp_path: Path) -> None:
    script = tmp_path / "short.py"
    # By its CPU time, not by the clock: it has to last until remoteprof, too, has had its share of a crowded machine.
    script.write_text("import time\nprint('ready', flush=True)\nwhile time.process_time() < 8: pass\n")
    with wine.target(wine.LATEST, script) as target:
        recording = wine.attach(wine.LATEST, target.pid, tmp_path, 60, 100)
    assert recording.stats["samples"] > 0
    assert stats.faults(recording.stats, recording.profile) == []
