"""Others at the same process: a second remoteprof, debuggers, the process itself; and files that let everyone wait."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support import cli, stats
from support.recorder import sampling, sampling_on
from support.targets import (
    PATIENCE,
    Running,
    compiled,
    proc_status,
    program,
    started,
    thread_states,
    wait_until,
    waits_library,
)

STRACE = ["strace", "-q", "-f", "-o", "/dev/null", "-p"]
GDB = ["gdb", "-nx", "-q", "-ex", "set confirm off", "-ex", "set debuginfod enabled off", "-p"]


def untouched(pid: int) -> bool:
    return set(thread_states(pid).values()) <= {"R", "S"}


def holds(tracer: int, pid: int) -> bool:
    return proc_status(pid)["TracerPid"] == str(tracer)


def test_two_recordings_of_one_process(tmp_path: Path) -> None:
    """Each meets threads that the other holds, counts that, and finishes."""
    numbers = [tmp_path / f"{number}.json" for number in range(2)]
    with started(program("threads.py", waits_library(), "0", "6")) as target:
        both = []
        for number, path in enumerate(numbers):
            options = ("-d", "2s", "-r", 1000, "-o", tmp_path / f"{number}.pb.gz", "--stats", path)
            both.append(cli.begin("attach", target.pid, *options))
        results = []
        for process in both:
            output, errors = process.communicate(timeout=PATIENCE)
            results.append(cli.Result(process.returncode, output, errors))
        assert untouched(target.pid)
        assert target.finish() == ""
    recordings = [
        cli.read_recording(result, tmp_path / f"{number}.pb.gz", path)
        for number, (result, path) in enumerate(zip(results, numbers, strict=True))
    ]
    for recording in recordings:
        assert stats.faults(recording.stats, recording.profile) == []
        assert recording.stats["complete"] > 0
    assert sum(recording.stats["collisions"] for recording in recordings) > 0


@contextlib.contextmanager
def debugged(command: list[str], pid: int) -> Iterator[Running]:
    """A debugger at a process, until it is told to let go."""
    assert shutil.which(command[0]), f"{command[0]} is not here: scripts/test installs it"
    with started([*command, str(pid)], ready="", stderr=subprocess.STDOUT) as debugger:
        wait_until(lambda: holds(debugger.pid, pid), f"{command[0]} at {pid}")
        yield debugger


@pytest.mark.parametrize("command", (STRACE, GDB), ids=("strace", "gdb"))
def test_a_debugger_that_was_there_first(command: list[str], tmp_path: Path) -> None:
    """It is named, and nobody is disturbed."""
    with started(program("idle.py")) as target:
        with debugged(command, target.pid) as debugger:
            output = tmp_path / "out.pb.gz"
            refused = cli.remoteprof("attach", target.pid, "-d", "300ms", "-o", output)
            refused.failed_with(4, f"traced by process {debugger.pid} ({command[0]})", "detach or end")
            assert not output.exists()
            assert holds(debugger.pid, target.pid)
            if command is GDB:
                debugger.send("detach\nquit\n")
            else:
                debugger.process.send_signal(signal.SIGINT)
            wait_until(lambda: proc_status(target.pid)["TracerPid"] == "0", "its detaching")
        assert cli.remoteprof("attach", target.pid, "-d", "300ms", "-o", tmp_path / "out.pb.gz").status == 0
        assert target.finish() == ""


CALLS = "import os\nprint('ready', flush=True)\nwhile True: os.getppid()"


@pytest.mark.parametrize("stopped", (False, True), ids=("computes", "calls"))
def test_a_debugger_that_comes_later(stopped: bool, tmp_path: Path) -> None:
    """The recording goes on, says who holds the process, and is right again when it lets go: strace stops a process at
    each of its system calls, where it looks asleep."""
    path, numbers = tmp_path / "out.pb.gz", tmp_path / "out.json"
    with started([sys.executable, "-c", CALLS] if stopped else [compiled("native/shares.c"), "3000"]) as target:
        options = ("-d", "1h", "-r", 500, "--max-pause", "1s", "-o", path, "--stats", numbers)
        recorder = cli.begin("attach", target.pid, *options)
        sampling(recorder)
        # It may find a thread in our hands: then it says so, and is called again.
        for _ in range(20):
            with started([*STRACE, str(target.pid)], ready="", stderr=subprocess.DEVNULL) as strace:
                wait_until(lambda it=strace: it.process.poll() is not None or holds(it.pid, target.pid), "strace")  # type: ignore[misc]
                if holds(strace.pid, target.pid):
                    # So many ticks take longer than it would be taken for a passing one (a tenth of a second).
                    sampling_on(recorder, 400)
                    strace.process.send_signal(signal.SIGINT)
                    strace.process.wait(PATIENCE)
                    break
        else:
            pytest.fail("strace never came to it")
        sampling_on(recorder)
        recorder.send_signal(signal.SIGTERM)
        recording = cli.ended(recorder, path, numbers)
        assert untouched(target.pid)
    assert stats.faults(recording.stats, recording.profile) == []
    assert recording.stats["collisions"] > 0 and recording.stats["complete"] > 0
    assert "[unreadable: traced by another]" in recording.profile.functions()
    assert any(re.search(r"traced by process \d+ \(strace\)", comment) for comment in recording.profile.comments)


def test_a_process_that_has_itself_traced(tmp_path: Path) -> None:
    """As programs do that want no debugger: a child of its own holds it."""
    source = tmp_path / "guards.py"
    source.write_text(
        "import ctypes, os, sys\n"
        "pid, libc = os.getpid(), ctypes.CDLL(None)\n"
        "ours, theirs = os.pipe()\n"
        "libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]\n"
        "if not os.fork():\n"
        "    assert libc.ptrace(0x4206, pid, None, None) == 0\n"
        "    os.write(theirs, b'+')\n"
        "    sys.stdin.read()\n"
        "    os._exit(0)\n"
        "os.read(ours, 1)\n"
        "print('ready', flush=True)\n"
        "os.wait()\n"
    )
    with started([sys.executable, source]) as target:
        refused = cli.remoteprof("attach", target.pid, "-d", "300ms", "-o", tmp_path / "out.pb.gz")
        refused.failed_with(4, f"process {target.pid} is being traced by process")
        assert target.finish() == ""
        assert target.process.wait(PATIENCE) == 0


@contextlib.contextmanager
def slow_files(folder: Path, file: str) -> Iterator[Running]:
    """A file system of one file, `program`, whose first read waits for a line of input."""
    assert os.geteuid() == 0, "mounting needs root: run the tests as root"
    folder.mkdir()
    with started(program("slow_files.py", folder, file)) as files:
        try:
            yield files
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("call", ("64", "32"))
def test_an_exec_that_takes_its_time(call: str, tmp_path: Path) -> None:
    """The file is not to be had yet: whoever seizes another thread of the process waits for it as well, if an exec is
    under way that was not seen before, or that cannot be told from other calls."""
    folder = tmp_path / "mounted"
    path, numbers = tmp_path / "out.pb.gz", tmp_path / "out.json"
    both = '"$1" 3000 >/dev/null & exec "$2" "$3" "$4"'
    programs = (compiled("native/shares.c"), compiled("execs.c", "-pthread"))
    command: list[str | Path] = ["sh", "-c", both, "sh", *programs, call, folder / "program"]
    with slow_files(folder, "/bin/sleep") as files, started(command) as target:
        other = psutil.Process(target.pid).children()[0]
        try:
            options = ("-d", "1h", "-r", 200, "-o", path, "--stats", numbers)
            recorder = cli.begin("attach", "--children", target.pid, *options)
            sampling(recorder)
            target.send("\n")
            assert files.line() == "reading"
            sampling_on(recorder)
            files.send("go\n")
            assert target.process.wait(PATIENCE) == 0
            recording = cli.ended(recorder, path, numbers)
        finally:
            other.kill()
    assert stats.faults(recording.stats, recording.profile) == []
    assert recording.profile.with_function("busy", "cpu") > 0
    assert any(name.startswith("work_") for name in recording.profile.functions())
    # Ticks were carried; those of threads that the exec ended are gone with them.
    assert recording.stats["pending_ticks"] + recording.stats["gone"] > 0
