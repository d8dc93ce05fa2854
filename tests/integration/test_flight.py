"""--last: what was kept is written when it is asked for, when a condition begins to hold, and at the end."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from support import cli, pprof, stats
from support.recorder import sampling
from support.targets import program, started, wait_until


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.name.endswith(".pb.gz"))


@pytest.mark.parametrize("command", ("attach", "run"))
def test_the_newest_time_is_written_when_asked_for_and_at_the_end(command: str, tmp_path: Path) -> None:
    options = ("-o", "app.pb.gz", "-r", 500, "--last", "1s", "--keep", 2, "--stats", "stats.json")
    with started(program("split.py")) as target:
        what = (
            ("attach", target.pid, *options) if command == "attach" else ("run", *options, "--", *program("split.py"))
        )
        process = cli.begin(*what, cwd=tmp_path)
        # Much more than is kept.
        sampling(process, wakeups=1000)
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: files(tmp_path), "the file that was asked for")
        [first] = files(tmp_path)
        assert pprof.load(first).total("samples") > 0
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    whole = json.loads((tmp_path / "stats.json").read_text())
    assert stats.faults(whole) == []
    assert [str(path.name) for path in files(tmp_path)] == [window["path"] for window in whole["windows"]]
    assert len(whole["windows"]) == 2
    for window in whole["windows"]:
        assert stats.faults(window, pprof.load(tmp_path / window["path"])) == []
        assert 0 < window["ticks"] < whole["ticks"], "not all of it"
        assert window["duration_ns"] < whole["duration_ns"]
    assert whole["windows"][-1]["start_ns"] > whole["windows"][0]["start_ns"]


@pytest.mark.parametrize(("condition", "tree"), (("cpu>20%", True), ("rss>1MiB", False)))
def test_a_condition_that_begins_to_hold(condition: str, tree: bool, tmp_path: Path) -> None:
    source = tmp_path / "waits.py"
    source.write_text(
        "import subprocess, sys\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'while True: pass'])\n"
        "sys.stdin.read()\n"
        "child.kill()\n"
    )
    options = ("-o", tmp_path / "app.pb.gz", "-r", 100, "--last", "60s", "--when", condition, "--when", "rss>100GiB")
    with started(["python3", source]) as target:
        process = cli.begin("attach", target.pid, *options, *(["--children"] if tree else []))
        if tree:
            sampling(process, wakeups=100)
            assert not files(tmp_path), "nobody was busy yet"
            target.send("go\n")
        wait_until(lambda: files(tmp_path), f"the file that {condition} writes")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        target.finish()
    assert process.returncode == 0, errors
    [said] = [line for line in errors.splitlines() if line.endswith("are written")]
    assert said.startswith(f"{condition} (") and "the last 60.0 s" in said
    assert len(files(tmp_path)) == 2


def test_usage() -> None:
    with started(program("idle.py")) as target:
        for options in (
            ("--last", "10ms"),
            ("--last", "10s", "--window", "1s"),
            ("--when", "cpu>80%"),
            ("--last", "10s", "--when", "cpu>80"),
            ("--last", "10s", "--when", "cpu>nan%"),
            ("--last", "10s", "--when", "rss>much"),
            ("--last", "10s", "--when", "load>3"),
        ):
            cli.remoteprof("attach", target.pid, *options).failed_with(2, "hint")
