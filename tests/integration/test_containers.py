"""Targets in containers: a root, processes, a network and users of their own, on glibc and on musl; from outside, and
from a sidecar. What is refused comes with the line that mends it."""

from __future__ import annotations

import errno
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support import cli
from support.containers import CAPABILITIES, container, root, sidecar
from support.targets import TARGETS, compiled, interpreter, started
from support.two_threads import PROGRAM, judge

from remoteprof._native import ADD_CAPABILITY, NO_FILTER

PYTHON = "/usr/bin/python3"
KINDS = (("debian", False), ("musl", False), ("musl", True))
Command = Callable[..., cli.Result]


def build_id(path: Path) -> str:
    text = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True).stdout
    return next((line.split()[-1] for line in text.splitlines() if "Build ID" in line), "")


def looked_at(remoteprof: Command, pid: int, directory: Path, name: str) -> None:
    """All that is shown of PROGRAM in a container over the root `name`, where it is called `pid`."""
    path, numbers = directory / "out.pb.gz", directory / "out.json"
    options = ("-d", "500ms", "-r", 500, "--native-all", "--max-pause", "1s", "-o", path, "--stats", numbers)
    recording = cli.read_recording(remoteprof("attach", pid, *options), path, numbers)
    judge(recording, pid)
    assert recording.stats["truncated"] == 0
    # Names are those of its own files, not of namesakes here.
    assert "Py_RunMain" in recording.profile.functions()

    told = json.loads(remoteprof("modules", pid, "--json").stdout)
    mapped = {module["path"]: module["build_id"] for module in told if module["path"].startswith("/")}
    assert "/usr/bin/python3." in next(iter(mapped))
    libc = {"debian": "/usr/lib/x86_64-linux-gnu/libc.so.6", "musl": "/lib/ld-musl-x86_64.so.1"}[name]
    assert libc in mapped
    assert mapped == {path: build_id(root(name) / path[1:]) for path in mapped}

    dumped = remoteprof("dump", pid).stdout
    assert "busy" in dumped and "waits" in dumped and "unreadable" not in dumped
    found = remoteprof("doctor", pid, "--json")
    assert found.status == 0
    process = {finding["name"]: finding for finding in json.loads(found.stdout)["process"]}
    assert "CPython 3.13" in process["runtime"]["fact"] and process["access"]["status"] == "ok"
    assert process["stacks"]["fact"] == "2 of 2 are complete"
    assert "mnt" in process["namespaces"]["fact"] and f"/proc/{pid}/root" in process["namespaces"]["fact"]


@pytest.mark.parametrize(("name", "users"), KINDS)
def test_from_outside(name: str, users: bool, tmp_path: Path) -> None:
    with container(name, tmp_path / "work", PYTHON, "-c", PROGRAM, users=users) as (target, pid):
        looked_at(cli.remoteprof, pid, tmp_path, name)
        assert target.finish() == ""


@pytest.mark.parametrize(("name", "users"), KINDS)
def test_from_a_sidecar(name: str, users: bool, tmp_path: Path) -> None:
    """With the capabilities of a container and SYS_PTRACE, nothing more: no way to /proc/PID/map_files."""
    with container(name, tmp_path / "work", PYTHON, "-c", PROGRAM, users=users) as (target, pid):

        def beside(*arguments: object) -> cli.Result:
            return sidecar(pid, tmp_path / "side", *arguments, users=users)

        looked_at(beside, 1, tmp_path, name)
        machine = json.loads(beside("doctor", "--json").stdout)["machine"]
        found = {finding["name"]: finding for finding in machine}
        assert found["namespaces"]["status"] == "limit" and found["capabilities"]["status"] == "ok"
        assert found["trial"]["status"] == "ok"
        top = beside("top", "1", "--once", "-d", "300ms")
        assert top.status == 0 and "busy" in top.stdout, top.stderr
        assert target.finish() == ""


def test_a_native_program_on_musl(tmp_path: Path) -> None:
    """Its own names, and those of code that it made: from the perf map in its own /tmp, under its own pid."""
    source = TARGETS / "native" / "names.c"
    place = tmp_path / "work" / "upper" / "app"
    place.mkdir(parents=True)
    subprocess.run(["musl-gcc", "-O2", "-g", "-Wl,--build-id", "-o", place / "program", source], check=True)
    with container("musl", tmp_path / "work", "/app/program", "jit") as (_, pid):
        recording = cli.attach(pid, tmp_path, 0.5, 200)
        path, numbers = tmp_path / "side.pb.gz", tmp_path / "side.json"
        options = ("-d", "500ms", "-r", 200, "--max-pause", "1s", "-o", path, "--stats", numbers)
        beside = cli.read_recording(sidecar(pid, tmp_path / "side", "attach", 1, *options), path, numbers)
    for seen in (recording, beside):
        assert {"jit::hot loop", "main"} <= seen.profile.functions()
        assert "/app/program" in seen.profile.mappings
        assert seen.stats["truncated"] == 0


def test_a_sidecar_without_the_capability(tmp_path: Path) -> None:
    """The target has a capability more than we: only SYS_PTRACE would do."""
    with container("debian", tmp_path / "work", PYTHON, "-c", PROGRAM, capabilities=(*CAPABILITIES, 2)) as (_, pid):

        def beside(*arguments: object) -> cli.Result:
            return sidecar(pid, tmp_path / "side", *arguments, capabilities=CAPABILITIES)

        refused = beside("attach", 1)
        refused.failed_with(4, "not permitted to read process 1", "docker run --cap-add=SYS_PTRACE", ADD_CAPABILITY)
        doctor = beside("doctor", 1)
    assert doctor.status == 4
    assert doctor.stdout.count(ADD_CAPABILITY) == 2, "of the machine, and of the process"


def filtered(how: int | str, calls: str, *arguments: object) -> cli.Result:
    """remoteprof under a filter that refuses system calls."""
    command: list[str | Path] = [compiled("refuse.c"), str(how), calls, cli.COMMAND, *(str(word) for word in arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    return cli.Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("how", (errno.EPERM, errno.ENOSYS))
def test_a_filter_that_refuses_ptrace(how: int, tmp_path: Path) -> None:
    with started([interpreter("3.12"), "-c", PROGRAM]) as target:
        output = ("-d", "300ms", "-o", tmp_path / "out.pb.gz")
        refused = filtered(how, "ptrace,readv", "attach", target.pid, *output)
        refused.failed_with(4, "a seccomp filter refuses ptrace", NO_FILTER)
        filtered(how, "ptrace", "dump", target.pid).failed_with(4, "seccomp", NO_FILTER)
        doctor = filtered(how, "ptrace", "doctor", target.pid)
        assert doctor.status == 4 and doctor.stdout.count(NO_FILTER) == 2, "the trial, and the process"
        # Who stops nobody is let.
        beside = filtered(how, "ptrace", "attach", target.pid, "--nonblocking", *output)
        assert beside.status == 0, beside.stderr
        assert target.finish() == ""


def test_a_filter_that_refuses_ptrace_to_run(tmp_path: Path) -> None:
    """CMD runs all the same."""
    command = ("run", "-o", tmp_path / "out.pb.gz", "--", "sh", "-c", "echo out; exit 3")
    ran = filtered(errno.EPERM, "ptrace", *command)
    assert (ran.status, ran.stdout) == (3, "out\n")
    assert "warning: not profiled: a seccomp filter refuses ptrace" in ran.stderr and NO_FILTER in ran.stderr
    strict = filtered(errno.EPERM, "ptrace", "run", "--strict", *command[1:])
    strict.failed_with(4, NO_FILTER)


@pytest.mark.parametrize("how", (errno.EPERM, errno.ENOSYS))
def test_a_filter_that_refuses_other_calls(how: int, tmp_path: Path) -> None:
    """Memory is read by /proc/PID/mem then, and files are opened in an older way."""
    path, numbers = tmp_path / "out.pb.gz", tmp_path / "out.json"
    options = ("-d", "500ms", "-r", 500, "--max-pause", "1s", "-o", path, "--stats", numbers)
    with container("debian", tmp_path / "work", PYTHON, "-c", PROGRAM) as (_, pid):
        judge(cli.read_recording(filtered(how, "readv,openat2", "attach", pid, *options), path, numbers), pid)


def test_a_filter_that_kills(tmp_path: Path) -> None:
    with started([interpreter("3.12"), "-c", PROGRAM]) as target:
        refused = filtered("kill", "ptrace", "attach", target.pid, "-d", "300ms", "-o", tmp_path / "out.pb.gz")
        refused.failed_with(4, "seccomp", NO_FILTER)
        assert target.finish() == ""
