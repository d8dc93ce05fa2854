"""--window: a file for each window of a recording, all of them together what one recording would be."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from support import cli, pprof
from support.recorder import sampling
from support.targets import program, started, wait_until
from support.windows import faults, files

NAME = re.compile(r"app-\d{8}T\d{6}\.\d{3}Z\.pb\.gz")


def record(directory: Path, command: str, *arguments: object) -> tuple[int, dict[str, Any], str]:
    done = cli.remoteprof(command, "--stats", directory / "stats.json", *arguments, cwd=directory)
    assert (directory / "stats.json").exists(), done.stderr
    return done.status, json.loads((directory / "stats.json").read_text()), done.stderr


@pytest.mark.parametrize("native", ("--native", "--no-native"))
def test_windows_add_up_to_the_whole(native: str, tmp_path: Path) -> None:
    """Of a target with a busy thread, and of one that is asleep."""
    other = tmp_path / "app-20200101T000000.000Z.pb.gz"
    other.write_text("not written by this recording")
    for source in ("split.py", "idle.py"):
        with started(program(source)) as target:
            options = ("-o", "app.pb.gz", "-r", 500, native, "--window", "300ms", "--keep", 3, "--stats", "stats.json")
            process = cli.begin("attach", target.pid, *options, cwd=tmp_path)
            seen: set[str] = set()

            def enough(seen: set[str] = seen) -> bool:
                seen.update(files(tmp_path))
                return len(seen) > 6

            wait_until(enough, "more files than are kept")
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        whole = json.loads((tmp_path / "stats.json").read_text())
        assert faults(whole, tmp_path) == []
        assert whole["samples"] > 0
        written = [window for window in whole["windows"] if window["path"]]
        kept = [window["path"] for window in written if "removed" not in window]
        assert files(tmp_path) == [other.name, *kept] and all(NAME.fullmatch(name) for name in kept)
        assert len(kept) == 3 < len(written)
        assert kept == sorted(window["path"] for window in written)[-3:]
        assert f"{len(written)} files written, 3 kept" in errors
        for name in kept:
            (tmp_path / name).unlink()


def test_a_signal_ends_a_window_and_the_recording(tmp_path: Path) -> None:
    with started(program("split.py")) as target:
        options = ("-o", "app.pb.gz", "-r", 500, "--window", "1h", "--stats", "stats.json")
        process = cli.begin("attach", target.pid, *options, cwd=tmp_path)
        sampling(process, wakeups=100)
        for count in (1, 2):
            process.send_signal(signal.SIGUSR1)
            wait_until(lambda count=count: len(files(tmp_path)) == count, f"window {count}")  # type: ignore[misc]
            assert pprof.load(tmp_path / files(tmp_path)[-1]).total("samples") > 0
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    whole = json.loads((tmp_path / "stats.json").read_text())
    assert faults(whole, tmp_path) == []
    assert [window["path"] for window in whole["windows"] if window["path"]] == files(tmp_path)


def test_run_writes_windows_and_passes_the_status_on(tmp_path: Path) -> None:
    """The end of CMD ends the last window; descendants that live through several windows are in each."""
    command = program("tree.py", "fork")
    options = ("-o", "app.pb.gz", "-r", 500, "--window", "200ms", "--all-output", "each", "--keep", 2)
    status, whole, errors = record(tmp_path, "run", *options, "--", *command)
    assert status == 0, errors
    assert faults(whole, tmp_path) == []
    assert len(whole["processes"]) >= 3
    for name in ("ticks", "thread_ticks", "samples", "cpu_ns_sampled", "cpu_ns_process", "unsampled_cpu_ns"):
        assert sum(part[name] for part in whole["processes"]) == whole[name], name
    spread = [part for part in whole["processes"] if part["samples"] > 0]
    assert all(part["thread_ticks"] >= part["samples"] for part in spread)
    kept = [window["path"][4:-6] for window in whole["windows"] if window["path"] and "removed" not in window]
    each = [path.name for path in (tmp_path / "each").iterdir()]
    assert each and all(any(name.endswith(f"-{time}.pb.gz") for time in kept) for name in each), (kept, each)


def test_unseen_time_of_short_lived_children_is_in_the_windows(tmp_path: Path) -> None:
    """Once each: the sum over the windows is what the tree used, by its own account."""
    source = tmp_path / "short.py"
    source.write_text(
        "import os, resource, time\n"
        "end = time.monotonic() + 1.5\n"
        "while time.monotonic() < end:\n"
        "    pid = os.spawnv(os.P_NOWAIT, '/bin/true', ['true'])\n"
        "    os.waitpid(pid, 0)\n"
        "used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]\n"
        "print(sum(one.ru_utime + one.ru_stime for one in used))\n"
    )
    options = ("-o", "app.pb.gz", "-r", 200, "--window", "200ms", "--stats", "stats.json", "-q")
    done = cli.remoteprof("run", *options, "--", sys.executable, "-S", source, cwd=tmp_path)
    assert done.status == 0, done.stderr
    whole = json.loads((tmp_path / "stats.json").read_text())
    assert faults(whole, tmp_path) == []
    used = float(done.stdout) * 1e9
    assert abs(whole["cpu_ns_process"] - used) < 0.05 * used + 2e7, (whole["cpu_ns_process"], used)
    with_unseen = [window for window in whole["windows"] if window["unsampled_cpu_ns"] > 0]
    assert len(with_unseen) > 2, "what nobody saw is not only in the last window"


def test_times_and_other_formats(tmp_path: Path) -> None:
    with started(program("split.py")) as target:
        options = ("-d", "1s", "-r", 200, "--window", "300ms", "--times", "-o", "app.gecko.json")
        status, whole, errors = record(tmp_path, "attach", target.pid, *options)
        assert status == 0, errors
        for window in whole["windows"]:
            if window["path"]:
                meta = json.loads((tmp_path / window["path"]).read_text())["meta"]
                assert abs(meta["startTime"] - window["start_ns"] / 1e6) < 1
        status, whole, errors = record(tmp_path, "attach", target.pid, *options[:-1], "app.pb.gz")
    assert status == 0, errors
    assert faults(whole, tmp_path) == []
    for window in whole["windows"]:
        if window["path"]:
            times = [sample.labels.get("time") for sample in pprof.load(tmp_path / window["path"]).samples]
            end = window["start_ns"] + window["duration_ns"]
            assert all(window["start_ns"] <= int(time) <= end for time in times if time)


def test_a_window_that_cannot_be_written_is_lost_and_said_to_be(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with started(program("split.py")) as target:
        options = ("-o", folder / "app.pb.gz", "-r", 200, "--window", "1h", "--stats", tmp_path / "stats.json")
        process = cli.begin("attach", target.pid, *options)
        sampling(process, wakeups=50)
        folder.rename(tmp_path / "away")
        process.send_signal(signal.SIGUSR1)
        assert process.stderr is not None
        assert "a window was lost" in process.stderr.readline()
        (tmp_path / "away").rename(folder)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and "1 windows could not be written" in errors, errors
    whole = json.loads((tmp_path / "stats.json").read_text())
    assert [window["path"] is None for window in whole["windows"]] == [True, False]
    assert "cannot write" in whole["windows"][0]["error"]
    assert len(files(folder)) == 1


def test_usage() -> None:
    with started(program("idle.py")) as target:
        for options in (
            ("--keep", "3"),
            ("--window", "1ms"),
            ("--window", "1s", "--keep", "0"),
            ("--window", "1s", "-o", "-"),
            ("--window", "1s", "-o", "/dev/null"),
        ):
            cli.remoteprof("attach", target.pid, *options).failed_with(2, "hint")
