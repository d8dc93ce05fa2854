"""Programs to record: which interpreters, C code, how to start them and how to tell that they run."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ROOT / "tests" / "targets"
CACHE = ROOT / ".cache"
PATIENCE = 60.0
"""Seconds after which a sign that never comes is a failure. Not a measure of anything."""

VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


@functools.cache
def interpreters() -> dict[str, Path]:
    listing = CACHE / "pythons" / "list"
    assert listing.exists(), "no interpreters to record: run scripts/setup-pythons"
    pairs = (line.split(" ", 1) for line in listing.read_text(encoding="utf-8").splitlines())
    return {version: Path(path) for version, path in pairs}


def interpreter(version: str) -> Path:
    found = interpreters().get(version)
    assert found and found.exists(), f"CPython {version} is not here: run scripts/setup-pythons"
    return found


def packages(version: str) -> Path:
    """The folder with what is installed for that CPython: numpy and greenlet."""
    folder = CACHE / "packages" / version
    assert (folder / "numpy").exists() and (folder / "greenlet").exists(), f"no {folder}: run scripts/setup-pythons"
    return folder


def compiled(name: str, *flags: str) -> Path:
    """tests/targets/NAME, compiled by gcc into .cache/targets; kept while source and flags are the same."""
    source = TARGETS / name
    key = hashlib.sha256(source.read_bytes() + repr(flags).encode()).hexdigest()[:16]
    result = CACHE / "targets" / f"{source.stem}-{key}"
    if not result.exists():
        result.parent.mkdir(parents=True, exist_ok=True)
        fresh = result.with_suffix(f".{os.getpid()}")
        command = ["gcc", "-O2", "-g", "-Wall", "-Wextra", "-Werror", *flags, str(source), "-o", str(fresh)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
        fresh.rename(result)
    return result


def waits_library() -> Path:
    return compiled("waits.c", "-shared", "-fPIC", "-pthread")


class Running:
    """A started program; its standard input and output are pipes of the test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def line(self, patience: float = PATIENCE) -> str:
        """The next line of its output. Only one line may be asked for at a time."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], patience)
        assert ready, f"no line came from {self.process.args!r}"
        line = self.process.stdout.readline()
        assert line, self._end()
        return line.rstrip("\n")

    def _end(self) -> str:
        """How it ended, where its output has."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, errors = self.process.communicate(timeout=5)
            return f"{self.process.args!r} ended early, with status {self.process.returncode}: {errors or ''}"
        return f"{self.process.args!r} closed its output"

    def send(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def finish(self) -> str:
        """End its input; the rest of its output."""
        output, _ = self.process.communicate(timeout=PATIENCE)
        assert isinstance(output, str)
        return output

    def terminate(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        return self.finish()

    def status(self) -> dict[str, str]:
        return proc_status(self.pid)


@contextlib.contextmanager
def started(command: Sequence[str | Path], ready: str = "ready", **options: object) -> Iterator[Running]:
    """Run a program; give it out once it has printed the line `ready`; kill it in the end."""
    process: subprocess.Popen[str] = subprocess.Popen(  # type: ignore[call-overload]
        [str(part) for part in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        **options,
    )
    running = Running(process)
    try:
        if ready:
            line = running.line()
            assert line == ready, f"expected {ready!r}, got {line!r}"
        yield running
    finally:
        process.kill()
        with contextlib.suppress(ValueError, BrokenPipeError, OSError):
            process.communicate(timeout=PATIENCE)


def program(name: str, *arguments: str | Path, version: str = "") -> list[str]:
    """The command line for tests/targets/NAME under that CPython (default: the one that runs the tests)."""
    python = str(interpreter(version)) if version else sys.executable
    return [python, str(TARGETS / name), *(str(argument) for argument in arguments)]


def proc_status(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def thread_states(pid: int) -> dict[int, str]:
    """The state letter of every thread, and its tracer as "/PID" behind it where there is one."""
    states = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
            tracer = fields["TracerPid"]
            states[int(task.name)] = fields["State"][0] + ("" if tracer == "0" else f"/{tracer}")
    return states


def wait_until(true: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Poll for a sign; fail, naming it, when it never comes."""
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, f"never seen: {what}"
        time.sleep(0.005)


def sleeps(pid: int) -> bool:
    """Whether the process is in a system call that waits for time to pass: all that it needs is loaded."""
    numbers = ("35", "230")  # nanosleep, clock_nanosleep
    return Path(f"/proc/{pid}/syscall").read_text(encoding="ascii").split()[0] in numbers


def gone(pid: int) -> bool:
    """No process, or one that only waits to be reaped."""
    try:
        return proc_status(pid)["State"].startswith(("Z", "X"))
    except (FileNotFoundError, ProcessLookupError):
        return True
