"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support import pprof
from support.targets import PATIENCE, ROOT

TESTS = """
import subprocess, sys, threading, time
import pytest

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

@pytest.fixture
def costly():
    burn(0.3)

def test_burns(costly):
    burn(0.3)

@pytest.mark.parametrize("value", ["a/b", "a:b"])
def test_named(value):
    burn(0.05)

def test_fails():
    burn(0.05)
    assert False, "as it must"
"""

BUDGETS = """
import subprocess, sys, threading, time
import pytest

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

@pytest.mark.cpu_budget("10s")
def test_within():
    burn(0.05)

@pytest.mark.cpu_budget("200ms")
def test_beyond():
    burn(0.3)

@pytest.mark.cpu_budget("200ms")
def test_asleep():
    time.sleep(0.3)

@pytest.mark.cpu_budget(0.2)
def test_thread():
    thread = threading.Thread(target=burn, args=(0.3,))
    thread.start()
    thread.join()

@pytest.mark.cpu_budget("200ms")
def test_child():
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.3: pass"], check=True)

@pytest.mark.cpu_budget("200ms")
def test_wrong_anyway():
    burn(0.3)
    assert 1 == 2
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs pytest over a text in an empty directory, with the plugin as pyproject.toml declares it."""
    declared = re.search(r"\[project\.entry-points\.pytest11\]\n(.+)\n", (ROOT / "pyproject.toml").read_text())
    assert declared
    metadata = tmp_path / "site" / "declared-0.dist-info"
    metadata.mkdir(parents=True)
    entry = declared[1].replace('"', "")
    (metadata / "entry_points.txt").write_text(f"[pytest11]\n{entry}\n")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: declared\nVersion: 0\n")
    work = tmp_path / "work"
    work.mkdir()
    (work / "pytest.ini").write_text("[pytest]\n")

    def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        (work / "test_it.py").write_text(text)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
        path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
            cwd=work,
            env={**environment, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=PATIENCE * 3,
            check=False,
        )

    return run


def properties(path: Path) -> dict[str, str]:
    """Test → the profile that its report names."""
    found = {}
    for case in ElementTree.parse(path).iter("testcase"):
        for one in case.iter("property"):
            assert one.get("name") == "remoteprof"
            found[case.get("name", "")] = one.get("value", "")
    return found


def test_off_until_asked(run: Run, tmp_path: Path) -> None:
    done = run(TESTS, "-q", "--junitxml=x.xml")
    assert done.returncode == 1, done.stdout
    assert "remoteprof" not in done.stdout
    assert properties(tmp_path / "work" / "x.xml") == {}
    assert {path.name for path in (tmp_path / "work").iterdir()} <= {"pytest.ini", "test_it.py", "x.xml", "__pycache__"}


def test_a_profile_for_each_test(run: Run, tmp_path: Path) -> None:
    done = run(TESTS, "--remoteprof=out/profiles", "--junitxml=x.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "3 passed" in done.stdout and "1 failed" in done.stdout
    assert "remoteprof: 4 profiles in out/profiles" in done.stdout
    found = properties(tmp_path / "work" / "x.xml")
    assert set(found) == {"test_burns", "test_named[a/b]", "test_named[a:b]", "test_fails"}
    assert len(set(found.values())) == 4
    assert {str(path) for path in (tmp_path / "work" / "out" / "profiles").iterdir()} == set(found.values())
    assert found["test_fails"] in done.stdout, "a failed test shows its profile"
    profile = pprof.load(Path(found["test_burns"]))
    assert {"burn", "test_burns"} <= profile.functions()
    assert "costly" not in profile.functions(), "the fixture is not part of the call"
    assert profile.with_function("test_burns", "cpu") >= 0.9 * 0.3e9
    assert "command: pytest test_it.py::test_burns" in profile.comments
    assert "test_burns" not in pprof.load(Path(found["test_fails"])).functions()


def test_a_profile_for_the_session(run: Run, tmp_path: Path) -> None:
    done = run(TESTS, "--remoteprof", "--remoteprof-scope=session", "--remoteprof-rate=500", "--junitxml=x.xml")
    assert "remoteprof: 1 profiles in remoteprof-profiles" in done.stdout, done.stdout + done.stderr
    (path,) = set(properties(tmp_path / "work" / "x.xml").values())
    profile = pprof.load(Path(path))
    assert {"costly", "test_burns", "test_named", "test_fails"} <= profile.functions()
    assert profile.period == 2_000_000


def test_what_cannot_be_recorded_is_told_and_fails_no_test(run: Run) -> None:
    done = run(
        "def test_it(): pass\n",
        "--remoteprof",
        "--remoteprof-rate=-1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "remoteprof: 1 not recorded: a rate of -1 Hz is not possible" in done.stdout


def test_a_test_behind_the_option_is_not_taken_for_a_directory(run: Run) -> None:
    done = run(TESTS, "--remoteprof", "test_it.py")
    assert done.returncode == 4
    assert "Write --remoteprof=DIR" in done.stderr


@pytest.mark.parametrize("options", ([], ["--remoteprof"]), ids=("alone", "recorded"))
def test_budgets(run: Run, options: list[str]) -> None:
    done = run(BUDGETS, "--strict-markers", "-rf", *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "4 failed, 2 passed" in done.stdout, done.stdout
    failures = dict(re.findall(r"FAILED test_it\.py::(\w+) - (.+)", done.stdout))
    assert set(failures) == {"test_beyond", "test_thread", "test_child", "test_wrong_anyway"}
    for name in ("test_beyond", "test_thread", "test_child"):
        assert re.search(r"used \d+ ms of CPU time, its budget is 200 ms", done.stdout), done.stdout
        assert failures[name].startswith(("Failed: used", "used")), failures
    assert "assert 1 == 2" in failures["test_wrong_anyway"]


def test_a_wrong_budget_is_found_before_tests_run(run: Run) -> None:
    done = run("import pytest\n@pytest.mark.cpu_budget('soon')\ndef test_it(): pass\n")
    assert done.returncode == 4
    assert 'cpu_budget takes one duration, such as "200ms"' in done.stderr + done.stdout
