"""`run`: CMD is as it would be alone - status, signals, streams - and is seen from its start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import cli, stats
from support.recorder import sampling
from support.targets import program, started, wait_until

SITE = """import time

def before():
    value = 1
    end = time.process_time() + 0.3
    while time.process_time() < end:
        value = (value * 31 + 7) & 0xFFFFF

before()
"""


def run(directory: Path, command: list[str], *options: str, text: str = "", **more: Any) -> tuple[int, str, str]:
    path, numbers = directory / "out.pb.gz", directory / "stats.json"
    arguments = [str(cli.COMMAND), "run", "-o", str(path), "--stats", str(numbers), *options, "--", *command]
    done = subprocess.run(arguments, input=text, capture_output=True, text=True, check=False, timeout=180, **more)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("status", (0, 3, 255, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGSEGV))
def test_status(status: int, tmp_path: Path) -> None:
    code, stdout, stderr = run(tmp_path, program("startup.py", str(status)), text="through\n")
    assert code == (status if status >= 0 else 128 - status), stderr
    assert stdout == "through\n"
    assert "from the program\n" in stderr and "Traceback" not in stderr


@pytest.mark.parametrize("shell", (False, True), ids=("direct", "through a shell"))
def test_the_start_is_seen(version: str, shell: bool, tmp_path: Path) -> None:
    """What the interpreter runs before the program, too, here a `sitecustomize` that takes its time."""
    (tmp_path / "sitecustomize.py").write_text(SITE)
    command = program("startup.py", "0", version=version)
    if shell:
        command = ["/bin/sh", "-c", 'exec "$0" "$@"', *command]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code, stdout, stderr = run(tmp_path, command, "-r", "1000", "-q", text="in", env=environment)
    assert (code, stdout, stderr) == (0, "in", "from the program\n")
    recording = cli.read_recording(cli.Result(0, "", ""), tmp_path / "out.pb.gz", tmp_path / "stats.json")
    assert stats.faults(recording.stats, recording.profile) == []
    total = recording.profile.total("cpu")
    early = recording.profile.with_function("early", "cpu")
    importing = {"before", "_find_and_load", "_load_unlocked", "exec_module", "execsitecustomize"}
    before = sum(sample.values["cpu"] for sample in recording.profile.samples if importing <= set(sample.names()))
    assert before > 0.25 * total, "the interpreter's own start was not seen"
    assert early > 0.25 * total and early + before > 0.5 * total


def test_not_found_and_not_executable(tmp_path: Path) -> None:
    code, stdout, stderr = run(tmp_path, ["no-such-command-anywhere"])
    assert code == 127 and stdout == "" and "rror:" in stderr and "Traceback" not in stderr
    plain = tmp_path / "plain"
    plain.write_text("")
    code, stdout, stderr = run(tmp_path, [str(plain)])
    assert code == 126 and stdout == "" and "rror:" in stderr and "Traceback" not in stderr


def test_a_command_that_is_no_python(tmp_path: Path) -> None:
    """The command's status counts. Without native frames there is nothing to profile: a warning, with --strict an
    error."""
    code, stdout, stderr = run(tmp_path, ["sh", "-c", "echo out; exit 4"])
    assert (code, stdout) == (4, "out\n")
    assert "warning" not in stderr and "Traceback" not in stderr
    code, stdout, stderr = run(tmp_path, ["sh", "-c", "echo out; exit 4"], "--no-native")
    assert (code, stdout) == (4, "out\n")
    assert "warning" in stderr and "Traceback" not in stderr
    code, stdout, stderr = run(tmp_path, ["sh", "-c", "echo out; exit 0"], "--strict", "--no-native")
    assert (code, stdout) == (1, "out\n"), stderr


def test_a_duration_ends_the_recording_not_the_command(tmp_path: Path) -> None:
    source = tmp_path / "longer.py"
    source.write_text("import sys\nprint('ready', flush=True)\nsys.stdin.readline()\nprint('on', flush=True)\n")
    path = tmp_path / "out.pb.gz"
    command: list[str | Path] = [cli.COMMAND, "run", "-d", "500ms", "-q", "-o", path, "--", sys.executable, source]
    with started(command) as running:
        wait_until(path.exists, "the profile, while the command runs on")
        assert running.process.poll() is None
        running.send("\n")
        assert running.finish() == "on\n"
        assert running.process.returncode == 0


def test_signals_reach_the_command(tmp_path: Path) -> None:
    path, numbers = tmp_path / "out.pb.gz", tmp_path / "stats.json"
    command: list[str | Path] = [
        cli.COMMAND,
        "run",
        "-r",
        "500",
        "-o",
        path,
        "--stats",
        numbers,
        "--",
        *program("split.py"),
    ]
    with started(command, stderr=subprocess.PIPE) as running:
        sampling(running.process, wakeups=100)
        running.process.send_signal(signal.SIGTERM)  # split.py ends by itself, and tells
        stdout, stderr = running.process.communicate(timeout=60)
    assert running.process.returncode == 0, stderr
    assert '"spent"' in stdout
    recording = cli.read_recording(cli.Result(0, stdout, stderr), path, numbers)
    assert stats.faults(recording.stats, recording.profile) == []
    assert stats.cpu_fault(recording.stats) == ""


def test_environment_descriptors_and_limits_are_the_callers(tmp_path: Path) -> None:
    source = tmp_path / "facts.py"
    source.write_text(
        "import os, resource, signal, json\n"
        "print(json.dumps({\n"
        "    'descriptors': [fd for fd in range(200) if os.path.exists(f'/proc/self/fd/{fd}')],\n"
        "    'files': resource.getrlimit(resource.RLIMIT_NOFILE),\n"
        "    'environment': dict(os.environ), 'directory': os.getcwd(),\n"
        "    'group': os.getpgrp() == os.getpgid(os.getppid()),\n"
        "    'session': os.getsid(0), 'mask': sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),\n"
        "    'handlers': [str(signal.getsignal(n)) for n in sorted(signal.valid_signals())],\n"
        "    'death': open('/proc/self/status').read().count('TracerPid:\\t0'), 'umask': os.umask(0)}))\n"
    )
    environment = {**os.environ, "REMOTEPROF_TEST": "é\udcff"}
    python = [sys.executable, "-S", str(source)]
    plain = subprocess.run(python, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path).stdout
    code, profiled, stderr = run(tmp_path, python, "-q", env=environment, cwd=tmp_path)
    assert (code, stderr) == (0, "")
    assert profiled.replace('"death": 0', '"death": 1') == plain


def test_unwritable_output_is_a_warning(tmp_path: Path) -> None:
    command = program("startup.py", "5")
    arguments = [str(cli.COMMAND), "run", "-o", "/dev/full", "--", *command]
    done = subprocess.run(arguments, input="", capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 5
    assert "Traceback" not in done.stderr
    assert "rror" in done.stderr or "warning" in done.stderr
    assert "from the program" in done.stderr
