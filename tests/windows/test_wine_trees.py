"""Processes on Windows, as far as wine shows it: `run`, descendants, launchers, `top`, Ctrl-C."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pip
import pytest
from support import cli, pprof, stats, wine
from support.targets import PATIENCE, TARGETS, wait_until

V = wine.LATEST


def python(version: str = V) -> str:
    return wine.path_of(wine.pythons()[version])


def words(*arguments: object, version: str = V) -> list[str]:
    """The command line of remoteprof under wine."""
    return wine.command(version, "-m", "remoteprof", *arguments)


def environment(version: str = V, **more: str) -> dict[str, str]:
    return {**wine.environment(wine.packages(version)), **more}


def run(
    directory: Path, command: list[str], *options: object, text: bytes = b"", version: str = V
) -> tuple[int, bytes, cli.Recording]:
    """The status and output of CMD, and the recording."""
    path, numbers = directory / "run.pb.gz", directory / "run.json"
    files = ("-o", wine.path_of(path), "--stats", wine.path_of(numbers))
    done = subprocess.run(
        words("run", *files, "--max-pause", "1s", *options, "--", *command, version=version),
        input=text,
        capture_output=True,
        env=environment(version),
        cwd=wine.packages(version),
        timeout=3 * PATIENCE,
        check=False,
    )
    errors = done.stderr.decode(errors="backslashreplace").replace("\r\n", "\n")
    return done.returncode, done.stdout, cli.read_recording(cli.Result(0, "", errors), path, numbers)


def faults(recording: cli.Recording) -> list[str]:
    """Broken identities: of the whole, and of each process."""
    found = stats.faults(recording.stats, recording.profile)
    for part in recording.stats.get("processes", []):
        found += [f"pid {part['pid']}: {fault}" for fault in stats.faults(part)]
    return found


def pids(profile: pprof.Profile) -> set[Any]:
    return {sample.labels["pid"] for sample in profile.samples}


def busy(profile: pprof.Profile, pid: int, function: str) -> float:
    """The CPU seconds of a process in a function."""
    rows = [sample for sample in profile.samples if sample.labels["pid"] == pid]
    return sum(sample.values["cpu"] for sample in rows if function in sample.names()) / 1e9


def test_output_input_and_status_are_those_of_the_program(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "def answer():\n"
        "    data = sys.stdin.buffer.read()\n"
        "    sys.stdout.buffer.write(data[::-1] + repr(sys.argv[1:]).encode())\n"
        "    sys.stdout.flush()\n"
        "    sys.stderr.write('and errors\\n')\n"
        "    sum(range(10_000_000))\n"
        "answer()\n"
        "os._exit(-1073741819)\n"  # as an access violation does
    )
    given = ["a b", 'quo"te', "back\\", ""]
    data = bytes(range(256))
    status, output, recording = run(tmp_path, [python(), "-c", script, *given], "-r", "200", text=data)
    # Linux sees eight bits of a status.
    assert (status, output) == (-1073741819 & 0xFF, data[::-1] + repr(given).encode())
    assert "and errors\n" in recording.result.stderr
    assert recording.profile.with_function("answer", "cpu") > 0
    # Its first instructions are recorded: what the interpreter imports at its start.
    assert any("<module>" not in sample.names() for sample in recording.profile.samples)
    assert faults(recording) == []
    missing = wine.remoteprof(V, "run", "--", "no-such-program")
    missing.failed_with(127, "not found")


def test_a_program_that_is_no_python_runs_as_ever(tmp_path: Path) -> None:
    output = ("-o", wine.path_of(tmp_path / "x.pb.gz"))
    program = ("--", "cmd", "/c", "echo one& exit 9")
    done = wine.remoteprof(V, "run", *output, *program)
    assert (done.status, done.stdout) == (9, "one\n"), done.stderr
    assert "Traceback" not in done.stderr
    done = wine.remoteprof(V, "run", "--no-native", *output, *program)
    assert (done.status, done.stdout) == (9, "one\n"), done.stderr
    assert "not a Python process" in done.stderr and "Traceback" not in done.stderr
    strict = wine.remoteprof(V, "run", "--no-native", "--strict", *output, *program)
    assert strict.status == 1


@pytest.mark.parametrize("version", ("3.10", V))
def test_a_tree(version: str, tmp_path: Path) -> None:
    script = wine.path_of(TARGETS / "windows_tree.py")
    status, output, recording = run(tmp_path, [python(version), script], "-r", "50", version=version)
    told = json.loads(output)
    assert (status, told.pop("status")) == (0, 3)
    assert faults(recording) == []
    for function, (pid, _) in told.items():
        assert busy(recording.profile, pid, function) > 0.2, function
        others = [other for name, (other, _) in told.items() if name != function]
        assert not any(busy(recording.profile, other, function) for other in others)
    assert (
        {pid for pid, _ in told.values()}
        == pids(recording.profile)
        == {part["pid"] for part in recording.stats["processes"]}
    )
    assert {sample.labels["process"] for sample in recording.profile.samples} == {"python.exe"}
    assert recording.stats["pid"] == told["busy_parent"][0]


def test_without_children(tmp_path: Path) -> None:
    script = wine.path_of(TARGETS / "windows_tree.py")
    status, output, recording = run(tmp_path, [python(), script], "--no-children")
    assert status == 0
    assert pids(recording.profile) == {json.loads(output)["busy_parent"][0]}
    assert "processes" not in recording.stats and faults(recording) == []


def test_short_lived_children_are_measured(tmp_path: Path) -> None:
    """No tick comes while they live: their CPU time is known all the same, and shown by their name."""
    script = wine.path_of(TARGETS / "windows_brood.py")
    status, output, recording = run(tmp_path, [python(), script, "few", "3"], "-r", "0.01")
    children, _ = json.loads(output)
    assert status == 0 and faults(recording) == []
    shown = {
        sample.frames[0].qualified: sample.values["cpu"] / 1e9
        for sample in recording.profile.samples
        if sample.frames[0].qualified.startswith("[unsampled: ")
    }
    assert set(shown) == {"[unsampled: python.exe]"}
    # What they use after they have told, and the steps of the clock.
    assert children * 0.8 <= shown["[unsampled: python.exe]"] <= children * 1.2 + 0.3
    assert recording.stats["unseen_cpu_ns"] >= recording.stats["unsampled_cpu_ns"] * 0.9 > 0
    assert pids(recording.profile) == {recording.stats["pid"]}


def test_names_narrow(tmp_path: Path) -> None:
    script = wine.path_of(TARGETS / "windows_brood.py")
    _, _, recording = run(tmp_path, [python(), script, "few", "1"], "--children-match", "^nobody")
    assert pids(recording.profile) == {recording.stats["pid"]}
    assert recording.stats["unsampled_cpu_ns"] == 0
    wine.remoteprof(V, "run", "--children-match", "(", "--", "cmd").failed_with(2, "regular expression")


def test_attach_with_children(tmp_path: Path) -> None:
    """One was there before, others are born meanwhile; a program beside them is none of theirs."""
    with (
        wine.target(V, TARGETS / "shares.py") as other,
        wine.target(V, TARGETS / "windows_brood.py", ready="") as target,
    ):
        early, late = int(target.running.line()), int(target.running.line())
        recording = wine.attach(V, target.pid, tmp_path, 6, 100, "--children")
        later = [int(target.running.line())]
        assert target.running.process.poll() is None and other.running.process.poll() is None
    found = pids(recording.profile)
    assert {target.pid, early} < found and other.pid not in found
    assert later[0] in found or late in found
    assert recording.profile.with_function("late", "cpu") > 0
    assert recording.profile.with_function("early", "samples") > 0
    assert busy(recording.profile, early, "late") == 0
    assert recording.stats["pid"] == target.pid and faults(recording) == []


def test_the_program_goes_on_when_remoteprof_is_killed(tmp_path: Path) -> None:
    """Its job does not end it, and the sampler lets go of what it holds."""
    script = "import sys\nprint('ready', flush=True)\nfor line in sys.stdin: print('still', line, flush=True)"
    arguments = ("run", "-o", wine.path_of(tmp_path / "x.pb.gz"), "--", python(), "-c", script)
    with wine.going(words(*arguments), environment(), wine.packages(V)) as running:
        assert running.line() == "ready"
        [supervisor] = wait_for(lambda: supervisors(tmp_path))
        os.kill(supervisor, signal.SIGKILL)
        wait_until(lambda: not wine.samplers(), "the end of the sampler")
        running.send("here\n")
        assert running.line().startswith("still here")
    assert not (tmp_path / "x.pb.gz").exists()


def wait_for(find: Callable[[], list[int]]) -> list[int]:
    wait_until(find, "what is looked for")
    return find()


def supervisors(directory: Path) -> list[int]:
    """The process ids, as Linux has them, of those that record into this folder."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes()
            if b"\0remoteprof\0run\0" in line and directory.name.encode() in line:
                found.append(int(folder.name))
    return found


def launcher(directory: Path) -> Path:
    """A launcher as venv makes it."""
    scripts = directory / "Scripts"
    scripts.mkdir()
    built = scripts / "python.exe"
    source = TARGETS / "windows_launcher.c"
    subprocess.run(["x86_64-w64-mingw32-gcc", "-O1", "-municode", "-o", built, source], check=True)
    return built


def test_a_launcher_of_a_venv_leads_to_the_interpreter(tmp_path: Path) -> None:
    shim = launcher(tmp_path)
    env = {**wine.environment(wine.ROOT / "tests" / "windows" / "site"), "REAL_PYTHON": python()}
    with wine.going(["wine", str(shim), wine.path_of(TARGETS / "shares.py")], env) as running:
        of_shim, _ = map(int, running.line().split())
        real = int(running.line())
        assert running.line() == "ready"
        recording = wine.attach(V, of_shim, tmp_path, 1, 100)
        dumped = wine.remoteprof(V, "dump", of_shim, "--json")
        once = wine.remoteprof(V, "top", of_shim, "--once", "-d", "1")
    assert pids(recording.profile) == {real} == {recording.stats["pid"]}
    sentence = (
        f"process {of_shim} (python.exe) only launches Python: this is the interpreter that it started, process {real}"
    )
    assert sentence in recording.result.stderr
    assert any(sentence in comment for comment in recording.profile.comments)
    assert recording.profile.with_function("heavy", "cpu") > 0
    assert dumped.status == 0 and {thread["pid"] for thread in json.loads(dumped.stdout)} == {real}
    assert f"only launches Python: this is the interpreter that it started, {real}" in dumped.stderr
    assert once.status == 0 and "heavy" in once.stdout and sentence in once.stderr, once.stderr


def test_a_command_that_pip_installed_leads_to_the_interpreter(tmp_path: Path) -> None:
    """Two launchers, one after the other: the command's own, which is a real one, and that of the venv."""
    shim = launcher(tmp_path)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("__main__.py", (TARGETS / "shares.py").read_text(encoding="utf-8"))
    stub = Path(pip.__file__).parent / "_vendor" / "distlib" / "t64.exe"
    command = tmp_path / "Scripts" / "shares.exe"
    command.write_bytes(stub.read_bytes() + f"#!{wine.path_of(shim)}\r\n".encode() + archive.getvalue())
    env = {**wine.environment(wine.ROOT / "tests" / "windows" / "site"), "REAL_PYTHON": python()}
    with wine.going(["wine", str(command)], env) as running:
        _, first = map(int, running.line().split())
        real = int(running.line())
        assert running.line() == "ready"
        recording = wine.attach(V, first, tmp_path, 1, 100)
    assert pids(recording.profile) == {real}
    assert f"process {first} (shares.exe) only launches Python" in recording.result.stderr


def test_top(tmp_path: Path) -> None:
    with wine.target(V, TARGETS / "shares.py") as target:
        once = wine.remoteprof(V, "top", target.pid, "--once", "-d", "2")
        assert once.status == 0, once.stderr
        head, columns, *rows = once.stdout.splitlines()
        assert head.startswith(f"python.exe {target.pid}") and "CPython 3.14" in head
        assert columns.split() == ["OWN", "TOTAL", "WALL", "GIL", "FUNCTION"]
        assert any("heavy" in row for row in rows) and any("sleeper" in row for row in rows)
        # One frame after another until the process ends.
        with wine.going(words("top", target.pid, "-d", "0.5"), environment(), wine.packages(V)) as running:
            frames = 0
            while frames < 3:
                frames += running.line().startswith("python.exe ")
            target.running.process.kill()
            _, errors = running.process.communicate(timeout=PATIENCE)
            assert running.process.returncode == 0 and b"has ended" in errors, errors
    wine.remoteprof(V, "top", 0x7FFFFFF0, "--once").failed_with(3, "no process")


def cpu(pid: int) -> float:
    """The CPU seconds of a process, by its id on Linux."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


CONTROL = """
import ctypes, os, subprocess, sys, time
kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
kernel32.FreeConsole()
assert kernel32.AllocConsole(), ctypes.get_last_error()
recorder = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
print("started", flush=True)
sys.stdin.readline()
kernel32.SetConsoleCtrlHandler(None, True)  # not for us
assert kernel32.GenerateConsoleCtrlEvent(0, 0), ctypes.get_last_error()
output, errors = recorder.communicate()
sys.stdout.buffer.write(b"%d\\n" % recorder.returncode + errors)
"""


def test_ctrl_c_ends_a_recording_with_a_profile(tmp_path: Path) -> None:
    output, numbers = tmp_path / "x.pb.gz", tmp_path / "x.json"
    with wine.target(V, TARGETS / "shares.py") as target:
        arguments = (
            "attach",
            target.pid,
            "-d",
            "600",
            "-r",
            "1000",
            "-o",
            wine.path_of(output),
            "--stats",
            wine.path_of(numbers),
        )
        command = [python(), "-m", "remoteprof", *map(str, arguments)]
        with wine.going(wine.command(V, "-c", CONTROL, *command), environment(), wine.packages(V)) as running:
            assert running.line().startswith("started")
            # It has begun, and has worked for a while.
            wait_until(lambda: sum(map(cpu, wine.samplers())) > 0.7, "a sampler at work", 3 * PATIENCE)
            running.send("now\n")
            assert running.line() == "0"
        assert target.running.process.poll() is None
    profile = pprof.load(output)
    assert stats.faults(json.loads(numbers.read_text(encoding="utf-8")), profile) == []
    assert profile.total("samples") > 0
