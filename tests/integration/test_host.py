"""A program that calls remoteprof.record() sees its own children's statuses right, and nothing is printed or left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import pprof
from support.targets import TARGETS, program, started

import remoteprof


@pytest.mark.parametrize("mode", ("subprocess", "any-child", "asyncio", "main-thread"))
def test_statuses_of_own_children(mode: str, tmp_path: Path) -> None:
    with started(program("split.py")) as target:
        command = [sys.executable, str(TARGETS / "host.py"), mode, str(target.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    word, samples, _, count = done.stdout.split()
    assert word == "recorded" and int(samples) > 0 and int(count) > 10
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_pytest_as_a_host(tmp_path: Path) -> None:
    """A test run that records while its tests start programs: each status is right, and its own exit status too."""
    with started(program("split.py")) as target:
        (tmp_path / "test_inner.py").write_text(
            "import subprocess, sys, threading\n"
            "import pytest, remoteprof\n"
            "@pytest.fixture(scope='module', autouse=True)\n"
            "def recording():\n"
            "    profiles = []\n"
            f"    thread = threading.Thread(target=lambda: profiles.append(remoteprof.record({target.pid}, 3, 1000)))\n"
            "    thread.start()\n"
            "    yield\n"
            "    thread.join()\n"
            "    assert profiles[0].stats['samples'] > 0\n"
            "@pytest.mark.parametrize('code', range(60))\n"
            "def test_status(code, capfd):\n"
            "    assert subprocess.call(['/bin/sh', '-c', f'exit {code}']) == code\n"
            "    assert capfd.readouterr() == ('', '')\n"
            "def test_that_fails():\n"
            "    assert subprocess.call(['/bin/false']) == 0\n"
        )
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180, cwd=tmp_path)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 60 passed" in done.stdout, done.stdout


def test_a_program_records_itself(tmp_path: Path) -> None:
    source = tmp_path / "itself.py"
    source.write_text(
        "import os, threading, remoteprof\n"
        "def busy():\n"
        "    value = 1\n"
        "    while not ended.is_set():\n"
        "        value = (value * 31 + 7) & 0xFFFFF\n"
        "ended = threading.Event()\n"
        "thread = threading.Thread(target=busy)\n"
        "thread.start()\n"
        "profile = remoteprof.record(os.getpid(), duration=2, rate=500)\n"
        "ended.set()\n"
        "thread.join()\n"
        "profile.save('own.pb.gz')\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, source], capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    profile = pprof.load(tmp_path / "own.pb.gz")
    assert profile.with_function("busy", "cpu") > 0.5 * profile.total("cpu")


def test_errors_are_exceptions_with_hints() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(remoteprof.ProcessNotFound) as missing:
        remoteprof.record(child.pid, duration=0.1)
    assert missing.value.message and missing.value.exit_code == 3
    with started(["cat"], ready="") as target, pytest.raises(remoteprof.NothingToProfile) as nothing:
        remoteprof.record(target.pid, duration=0.1, native=False)
    assert nothing.value.hint
    with pytest.raises(remoteprof.UsageError):
        remoteprof.record(1, duration=-1)
    with pytest.raises(remoteprof.UsageError):
        remoteprof.record(1, rate=0)
