"""For pytest: profiles of tests, recorded from outside, and budgets of CPU time.

`pytest --remoteprof[=DIR]` records the call of each test (fixtures left out), or with `--remoteprof-scope=session` all
of it at once, and adds the path to the report of the test, as the property `remoteprof`.
`@pytest.mark.cpu_budget("200ms")` fails a test whose call uses more CPU time: that of this process, all its threads,
and the children that it waited for. Without either nothing is done. Only what is always needed is imported here: pytest
loads this module wherever remoteprof is installed.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

DIRECTORY = "remoteprof-profiles"
RATE = 1000.0
PROPERTY = "remoteprof"
_PR_SET_PTRACER = 0x59616D61
_RECORDER = pytest.StashKey["Recorder"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("remoteprof", "profiles of tests")
    group.addoption(
        "--remoteprof",
        nargs="?",
        const=DIRECTORY,
        default=None,
        metavar="=DIR",
        help=f"record tests from outside, into profiles in DIR (default: {DIRECTORY})",
    )
    group.addoption(
        "--remoteprof-scope",
        choices=("test", "session"),
        default="test",
        help="a profile for each test, or one for all",
    )
    group.addoption(
        "--remoteprof-rate", type=float, default=RATE, metavar="HZ", help=f"samples a second (default: {RATE:g})"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known, and starts the recorder where profiles are asked for."""
    config.addinivalue_line("markers", 'cpu_budget(time): fail if the test uses more CPU time, such as "200ms"')
    directory = config.getoption("remoteprof")
    if directory is None:
        return
    given = config.invocation_params.args
    if any((one, other) == ("--remoteprof", directory) for one, other in itertools.pairwise(given)):
        raise pytest.UsageError(f"is {directory!r} a test or a directory? Write --remoteprof=DIR")
    # The process that hands tests out to others runs none itself.
    if getattr(config.option, "dist", "no") == "no" or hasattr(config, "workerinput"):
        config.stash[_RECORDER] = Recorder(Path(directory), config.getoption("remoteprof_rate"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Finds wrong budgets before the first test runs."""
    for item in items:
        budget_of(item)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begins the one profile, where that is asked for."""
    recorder = session.config.stash.get(_RECORDER, None)
    if recorder is not None and session.config.getoption("remoteprof_scope") == "session":
        worker = os.environ.get("PYTEST_XDIST_WORKER", "")
        recorder.begin(f"session{'-' if worker else ''}{worker}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Ends the recording."""
    recorder = session.config.stash.get(_RECORDER, None)
    if recorder is not None:
        recorder.end()
        recorder.close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Records a test's call, and holds it to its budget."""
    recorder = item.config.stash.get(_RECORDER, None)
    alone = recorder is not None and item.config.getoption("remoteprof_scope") == "test"
    if recorder is not None and alone:
        recorder.begin(item.nodeid)
    budget = budget_of(item)
    before = cpu_time_ns()
    try:
        result = yield
        used = cpu_time_ns() - before
    finally:
        if recorder is not None:
            path = recorder.end() if alone else recorder.path
            if path:
                item.user_properties.append((PROPERTY, path))
    if budget is not None and used > budget:
        from remoteprof.stats import duration_text

        pytest.fail(f"used {duration_text(used)} of CPU time, its budget is {duration_text(budget)}", pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the path with what a failed test prints."""
    report = yield
    if report.when == "call":
        report.sections += [("profile", str(value)) for name, value in item.user_properties if name == PROPERTY]
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Tells where the profiles are, and what could not be recorded."""
    recorder = config.stash.get(_RECORDER, None)
    if recorder is not None:
        terminalreporter.write_line(f"remoteprof: {recorder.count} profiles in {recorder.directory}")
        for complaint, count in recorder.complaints.items():
            terminalreporter.write_line(f"remoteprof: {count} not recorded: {complaint}", yellow=True)


def budget_of(item: pytest.Item) -> int | None:
    """The budget of a test in nanoseconds; None = no mark. Raises pytest.UsageError for one that is no duration."""
    mark = item.get_closest_marker("cpu_budget")
    if mark is None:
        return None
    from remoteprof.cli.text import parse_duration

    try:
        (value,) = mark.args
        return parse_duration(str(value))
    except ValueError:
        raise pytest.UsageError(f'{item.nodeid}: cpu_budget takes one duration, such as "200ms"') from None


def cpu_time_ns() -> int:
    """CPU time of this process and of the children that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time_ns() + round((children.ru_utime + children.ru_stime) * 1e9)


def _allow_tracing(pid: int) -> None:
    """Lets a process and its descendants trace this one where Yama would not (scope 1)."""
    with contextlib.suppress(OSError, ValueError):
        if int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text()) == 1:
            ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


class Recorder:
    """A process that records this one (pytest_recorder.py), one profile after the other."""

    def __init__(self, directory: Path, rate: float) -> None:
        self.directory = directory
        self.path = ""
        """The profile that is being recorded; "" = none."""
        self.count = 0
        self.complaints: dict[str, int] = {}
        """Why something was not recorded, and how often."""
        directory.mkdir(parents=True, exist_ok=True)
        self._rate = rate
        self._process: subprocess.Popen[str] | None = None

    def begin(self, name: str) -> None:
        """Records from now on, into a file called after `name`."""
        from remoteprof.cli.text import safe_file_name

        # Of two names that are the same as far as a file name can tell, each has its own number.
        path = self.directory.resolve() / f"{safe_file_name(name)}-{zlib.crc32(name.encode()):08x}.pb.gz"
        if self._process is None:
            self._process = self._start()
        answer = self._ask({"path": str(path), "rate": self._rate, "name": name})
        self.path = str(path) if answer is not None else ""

    def end(self) -> str:
        """Ends the recording; gives the path of its profile, "" = there is none."""
        path, self.path = self.path, ""
        if not path or self._process is None:
            return ""
        self._process.send_signal(signal.SIGUSR1)
        if self._answer() is None:
            return ""
        self.count += 1
        return path

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "remoteprof.pytest_recorder", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for pytest, which then ends the recording
        )
        _allow_tracing(process.pid)
        return process

    def _ask(self, question: dict[str, Any]) -> dict[str, Any] | None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except OSError:
            return self._complain("the recorder ended")
        return self._answer()

    def _answer(self) -> dict[str, Any] | None:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            return self._complain("the recorder ended")
        answer: dict[str, Any] = json.loads(line)
        return self._complain(answer["error"]) if "error" in answer else answer

    def _complain(self, what: str) -> dict[str, Any] | None:
        self.complaints[what] = self.complaints.get(what, 0) + 1
        return None
