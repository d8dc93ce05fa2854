"""What the unit tests share: a native module that needs no Rust, and commands that run against it."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.targets import sleeps, wait_until

FAKE = Path(__file__).parent / "fake" / "_native.py"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def native(monkeypatch):
    """The fake native module, in place of the real one."""
    import remoteprof

    specification = importlib.util.spec_from_file_location("remoteprof._native", FAKE)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "remoteprof._native", module)
    monkeypatch.setattr(remoteprof, "_native", module, raising=False)
    return module


@pytest.fixture
def start(tmp_path):
    """Starts `remoteprof ARGUMENTS` over the fake native module, in an empty directory."""
    started = []

    def start(*arguments, fake="", **options):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "FAKE": fake}
        process = subprocess.Popen(
            [sys.executable, str(FAKE), *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def remoteprof(start):
    """Runs `remoteprof ARGUMENTS` as `start` does, to its end: (exit code, stdout, stderr)."""

    def run(*arguments, **options):
        process = start(*arguments, **options)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    return run


@pytest.fixture
def target():
    """A process that sleeps."""
    process = subprocess.Popen(["sleep", "1000"])
    wait_until(lambda: sleeps(process.pid), "a process that sleeps")
    yield process
    process.kill()
    process.wait()
