"""remoteprof that is killed while it holds a thread suspended: the supervisor lets the thread go on, or else doctor."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support import wine
from support.cli import LONG
from support.targets import TARGETS, thread_states, wait_until

KILLS, KILLS_OF_BOTH = (200, 200) if LONG else (8, 4)
VERSION = wine.LATEST


class Beat:
    """A program whose threads must all work on, and what Windows says of their suspensions."""

    def __init__(self, target: wine.Target, watcher: wine.Target) -> None:
        self.target, self.watcher = target, watcher
        self.pid = target.pid

    def suspended(self) -> dict[str, int]:
        """How often each of its threads is suspended; those that are not are left out."""
        return dict(self.ask(f"count {self.pid}"))

    def ask(self, question: str) -> Any:
        self.watcher.running.send(f"{question}\n")
        return json.loads(self.watcher.running.line())

    def works_on(self) -> None:
        self.target.running.send("and now?\n")
        assert self.target.running.line().startswith("both worked on")


@contextlib.contextmanager
def beating() -> Iterator[Beat]:
    assert wine.samplers() == []
    with (
        wine.target(VERSION, TARGETS / "windows_beat.py") as target,
        wine.target(VERSION, TARGETS / "windows_suspended.py", ready="") as watcher,
    ):
        yield Beat(target, watcher)


@contextlib.contextmanager
def recording(pid: int, path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, wine.Held]]:
    """A recording that has begun to hold threads: its supervisor, the pid of its sampler, its record."""
    before = set(wine.Held.records())
    options = ("-d", 60, "-r", 5000, "-o", wine.path_of(path / "x.pb.gz"))
    with wine.begin(VERSION, "attach", pid, *options) as supervisor:
        wait_until(lambda: set(wine.Held.records()) - before, "a record")
        held = wine.Held(*set(wine.Held.records()) - before)
        wait_until(held.thread, "a thread that is held")
        [sampler] = wine.samplers()
        yield supervisor, sampler, held


def stop_while_it_holds(beat: Beat, sampler: int, held: wine.Held) -> None:
    """Stops the sampler at a moment at which it holds a thread suspended."""
    for _ in range(10_000):
        os.kill(sampler, signal.SIGSTOP)
        wait_until(lambda: stopped(sampler), "its stop")
        # Not if it is just about to suspend one, or has just let it go.
        if (thread := held.thread()) and beat.suspended() == {str(thread): 1}:
            return
        os.kill(sampler, signal.SIGCONT)
        time.sleep(0.001)
    raise AssertionError("it never held a thread")


def stopped(pid: int) -> bool:
    return set(thread_states(pid).values()) == {"T"}


def kill_both(supervisor: subprocess.Popen[bytes], sampler: int) -> None:
    for pid in (supervisor.pid, sampler):
        os.kill(pid, signal.SIGKILL)
    supervisor.communicate(timeout=60)
    wait_until(lambda: wine.samplers() == [], "the end of the sampler")


def left_behind(*arguments: object) -> list[dict[str, str]]:
    """What doctor says of threads left behind: of the machine, and of the process."""
    done = wine.remoteprof(VERSION, "doctor", *arguments, "--json")
    assert done.status == 0, done.stderr
    return [one for group in json.loads(done.stdout).values() for one in group if one["name"] == "left behind"]


def test_a_killed_sampler_leaves_no_thread_suspended(tmp_path: Path) -> None:
    with beating() as beat:
        for kill in range(KILLS):
            with recording(beat.pid, tmp_path) as (supervisor, sampler, held):
                if kill % 4 == 0:
                    stop_while_it_holds(beat, sampler, held)
                else:
                    # Somewhere in the recording, at another place each time.
                    time.sleep(kill % 50 * 0.0137)
                os.kill(sampler, signal.SIGKILL)
                _, errors = supervisor.communicate(timeout=60)
            assert supervisor.returncode == 1, errors
            assert b"the sampler process ended" in errors, errors
            assert beat.suspended() == {}
            beat.works_on()
        assert wine.Held.records() == []


def test_both_killed_leave_one_thread_at_most_and_doctor_lets_it_go(tmp_path: Path) -> None:
    found = 0
    with beating() as beat:
        for kill in range(KILLS_OF_BOTH):
            with recording(beat.pid, tmp_path) as (supervisor, sampler, held):
                if kill % 4 == 0:
                    stop_while_it_holds(beat, sampler, held)
                else:
                    time.sleep(kill % 50 * 0.0137)
                kill_both(supervisor, sampler)
            left = beat.suspended()
            assert list(left.values()) in ([], [1]), left
            if left:
                found += 1
                [thread] = left
                assert thread == str(held.thread()), "the record names another thread"
                if found == 1:
                    [of_machine] = left_behind()
                    assert of_machine["status"] == "limit" and f"{thread} of process {beat.pid}" in of_machine["fact"]
                    assert of_machine["mend"] == f"remoteprof doctor {beat.pid}"
                    assert beat.suspended() == left, "only doctor PID may let it go"
                of_machine, of_process = left_behind(beat.pid)
                assert of_machine["status"] == "ok", "it says what is left, after it was mended"
                assert of_process["status"] == "ok" and f"thread {thread} " in of_process["fact"], of_process
                assert beat.suspended() == {}
            beat.works_on()
        # One of whom nothing is left goes when the next one begins, or by doctor.
        assert [one["status"] for one in left_behind(beat.pid)] == ["ok"]
        assert wine.Held.records() == []
    assert found >= KILLS_OF_BOTH // 4


def test_what_somebody_else_suspended_stays_so(tmp_path: Path) -> None:
    with beating() as beat:
        with recording(beat.pid, tmp_path) as (supervisor, sampler, held):
            # One that lives on is let alone: the thread that it holds just now is its own to let go.
            assert [one["status"] for one in left_behind(beat.pid)] == ["ok"]
            stop_while_it_holds(beat, sampler, held)
            kill_both(supervisor, sampler)
        [thread] = beat.suspended()
        assert beat.ask(f"suspend {thread}") == 1
        _, of_process = left_behind(beat.pid)
        assert of_process["status"] == "limit" and "suspended 2 times" in of_process["fact"]
        assert beat.suspended() == {thread: 2}
        assert beat.ask(f"resume {thread}") == 2
        _, of_process = left_behind(beat.pid)
        assert of_process["status"] == "ok"
        assert beat.suspended() == {}
        # Without a record it is none of ours.
        assert beat.ask(f"suspend {thread}") == 0
        assert [one["status"] for one in left_behind(beat.pid)] == ["ok"]
        assert beat.suspended() == {thread: 1}
        assert beat.ask(f"resume {thread}") == 1
        beat.works_on()
