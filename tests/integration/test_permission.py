"""Without the right to trace: exit 4, what to do about it, and nothing else."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import cli, stats
from support.targets import ROOT, interpreters, program, started

NOBODY = 65534
TRUSTED = """
#include <time.h>
static volatile unsigned long sink;
__attribute__((noinline)) static void guarded(void) { for (int i = 0; i < 1000000; i++) sink += i; }
int main(void) { while (clock() < CLOCKS_PER_SEC / 2) guarded(); return 0; }
"""
"""Half a second of CPU time."""
AS_NOBODY = [
    "setpriv",
    f"--reuid={NOBODY}",
    f"--regid={NOBODY}",
    "--clear-groups",
    "--inh-caps=-all",
    "--bounding-set=-all",
    "env",
]
"""`env` because what setpriv itself executes it may still find with root's eyes."""


@pytest.fixture(scope="module")
def unprivileged() -> Iterator[list[str]]:
    """The command line of remoteprof for a user without privileges: a copy that everybody can read."""
    assert os.geteuid() == 0, "these tests give up root's privileges: run the tests as root"
    assert shutil.which("setpriv"), "setpriv (util-linux) is not here"
    candidates = [Path(sys.executable), Path("/usr/bin/python3"), *interpreters().values()]
    check = "import sys, ctypes; sys.exit(sys.version_info < (3, 10))"
    able = [
        path
        for path in candidates
        if subprocess.run([*AS_NOBODY, path, "-c", check], check=False, capture_output=True).returncode == 0
    ]
    assert able, f"no Python from 3.10 on that an unprivileged user can run: {candidates}"
    with tempfile.TemporaryDirectory(prefix="remoteprof-test-") as name:
        copy = Path(name)
        for place in site.getsitepackages():
            shutil.copytree(
                place, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("mypy*", "*.pth", "ruff*", "maturin*")
            )
        shutil.copytree(ROOT / "remoteprof", copy / "remoteprof", dirs_exist_ok=True)
        subprocess.run(["chmod", "-R", "a+rX", str(copy)], check=True)
        yield [*AS_NOBODY, f"PYTHONPATH={copy}", "PYTHONDONTWRITEBYTECODE=1", str(able[0]), "-m", "remoteprof"]


def run(command: list[str], *arguments: object) -> cli.Result:
    done = subprocess.run(
        [*command, *(str(argument) for argument in arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/tmp",
        timeout=120,
    )
    return cli.Result(done.returncode, done.stdout, done.stderr)


def test_the_copy_works(unprivileged: list[str]) -> None:
    shown = run(unprivileged, "--help")
    assert shown.status == 0, shown.stderr


@pytest.mark.parametrize("command", ("attach", "dump", "modules"))
def test_the_process_of_another_user(command: str, unprivileged: list[str]) -> None:
    with started(program("idle.py")) as target:
        result = run(unprivileged, command, target.pid)
        result.failed_with(4, "hint", "CAP_SYS_PTRACE")
        assert target.finish() == ""


def test_ones_own_process(unprivileged: list[str]) -> None:
    """No privilege is needed for `run`, and none beyond ptrace_scope for one's own process."""
    python = unprivileged[-3]
    with tempfile.TemporaryDirectory(prefix="remoteprof-test-") as name:
        os.chown(name, NOBODY, NOBODY)
        script = "def busy():\n  for i in range(3000000): i * i\nbusy()"
        result = run(unprivileged, "run", "-q", "-r", 500, "-o", f"{name}/out.pb.gz", "--", python, "-c", script)
        assert (result.status, result.stdout, result.stderr) == (0, "", "")
        assert Path(name, "out.pb.gz").stat().st_uid == NOBODY


def test_a_setuid_program_below(unprivileged: list[str]) -> None:
    """It may not be looked into; its CPU time is there all the same, and the rest of the tree is as ever."""
    python = unprivileged[-3]
    with tempfile.TemporaryDirectory(prefix="remoteprof-test-") as name:
        os.chown(name, NOBODY, NOBODY)
        program, source = Path(name, "trusted"), Path(name, "trusted.c")
        source.write_text(TRUSTED)
        subprocess.run(["gcc", "-O1", "-g", "-o", program, source], check=True)
        program.chmod(0o4755)
        busy = "def busy():\n  for i in range(5000000): i * i\nbusy()"
        (Path(name) / "busy.py").write_text(busy)
        script = f"{program} & {python} {name}/busy.py; wait $!; exit 7"
        options = ("-q", "-r", 500, "-o", f"{name}/out.pb.gz", "--stats", f"{name}/out.json")
        result = run(unprivileged, "run", *options, "--", "sh", "-c", script)
        assert (result.status, result.stdout, result.stderr) == (7, "", "")
        recording = cli.read_recording(cli.Result(0, "", ""), Path(name, "out.pb.gz"), Path(name, "out.json"))
    assert stats.faults(recording.stats, recording.profile) == []
    assert recording.profile.with_function("busy", "cpu") > 0.1e9
    own = [sample for sample in recording.profile.samples if "trusted" in (sample.labels["process"], *sample.names())]
    # Its own, before its exec and after it, or as its parent was told of it.
    parts = [part for part in recording.stats["processes"] if part["process"] == "trusted"]
    print(parts, [(sample.names(), sample.values, sample.labels) for sample in own])
    assert "guarded" not in recording.profile.functions()
    total = recording.stats["cpu_ns_process"]
    assert total > 0.4e9 + recording.profile.with_function("busy", "cpu")


def test_a_place_that_may_not_be_written(unprivileged: list[str]) -> None:
    with started([*AS_NOBODY, *unprivileged[-3:-2], "-c", "print('ready', flush=True); input()"]) as target:
        result = run(unprivileged, "attach", target.pid, "-d", "300ms", "-o", "/out.pb.gz")
        scope = Path("/proc/sys/kernel/yama/ptrace_scope")
        restricted = scope.exists() and scope.read_text().strip() != "0"
        result.failed_with(4 if restricted else 1)


def test_doctor_needs_no_rights(unprivileged: list[str]) -> None:
    with started(program("idle.py")) as target:
        done = run(unprivileged, "doctor", target.pid)
    assert done.status == 4 and done.stderr == ""
    assert "limit  capabilities" in done.stdout and "limit  access" in done.stdout and "sudo" in done.stdout
    assert "ok     trial" in done.stdout, "its own processes can be read"
