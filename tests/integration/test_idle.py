"""An idle target, and what `dump` and `modules` show of it."""

from __future__ import annotations

import json
from pathlib import Path

from support import cli, stats
from support.targets import program, started


def test_idle_target(version: str, tmp_path: Path) -> None:
    with started(program("idle.py", version=version)) as target:
        recording = cli.attach(target.pid, tmp_path, 5, 100)
        assert target.finish() == ""
        assert target.process.returncode == 0
    numbers, profile = recording.stats, recording.profile
    assert stats.faults(numbers, profile) == []
    assert numbers["samples"] > 0
    assert profile.total("cpu") < 0.02 * numbers["duration_ns"]
    assert {"wait_for_input", "sleep"} <= profile.functions()
    assert profile.total("wall") > 1.5 * numbers["duration_ns"], "two threads that wait"
    # An idle thread is read once and its stack then reused: nothing was stopped for it.
    assert numbers["pause_us"]["count"] <= 0.05 * numbers["samples"]


def test_state_label(tmp_path: Path) -> None:
    states = {}
    for name in ("idle.py", "split.py"):
        with started(program(name)) as target:
            profile = cli.attach(target.pid, tmp_path, 1, 100).profile
        labels = {sample.labels.get("state") for sample in profile.samples if sample.values["samples"]}
        assert labels <= {"running", "runnable", "sleeping", "disk"}
        states[name] = {
            label: sum(s.values["samples"] for s in profile.samples if s.labels.get("state") == label)
            for label in labels
        }
    assert states["idle.py"].get("sleeping", 0) > 0.9 * sum(states["idle.py"].values())
    assert states["split.py"].get("running", 0) > 0.3 * sum(states["split.py"].values())


def test_without_idle_threads(tmp_path: Path) -> None:
    with started(program("idle.py")) as target:
        recording = cli.attach(target.pid, tmp_path, 1, 100, "--no-idle")
    assert recording.profile.with_function("wait_for_input", "samples") <= 2


def test_dump(version: str) -> None:
    with started(program("idle.py", version=version)) as target:
        text = cli.remoteprof("dump", target.pid)
        rows = cli.remoteprof("dump", target.pid, "--json")
        assert target.finish() == ""
    assert text.status == 0, text.stderr
    for name in ("wait_for_input", "main", "<module>", "sleep", "idle.py:"):
        assert name in text.stdout, text.stdout
    assert rows.status == 0, rows.stderr
    assert "wait_for_input" in json.dumps(json.loads(rows.stdout))


def test_modules() -> None:
    with started(program("idle.py", version="3.12")) as target:
        text = cli.remoteprof("modules", target.pid)
        rows = cli.remoteprof("modules", target.pid, "--json")
        maps = Path(f"/proc/{target.pid}/maps").read_text(encoding="utf-8")
        main = Path(f"/proc/{target.pid}/exe").resolve()
    assert text.status == 0 and rows.status == 0, text.stderr + rows.stderr
    modules = json.loads(rows.stdout)
    executable = {
        line.split(None, 5)[5] for line in maps.splitlines() if "x" in line.split()[1] and len(line.split()) > 5
    }
    assert {module["path"] for module in modules} | {"[vsyscall]"} == executable | {"[vsyscall]"}
    assert modules[0]["path"] == str(main)
    for path in executable:
        assert path in text.stdout
    vdso = next(module for module in modules if module["path"] == "[vdso]")
    assert len(vdso["build_id"]) == 40, "the vDSO's build id is read from its image in memory"
