"""dump --children: each process of a tree with its threads."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support import cli
from support.targets import Running, program, started, wait_until

from remoteprof.tree import dump_tree


@pytest.fixture
def family(version: str) -> Iterator[tuple[Running, dict[str, int]]]:
    """The program, and the pids below it."""
    with started(program("family.py", version=version), ready="") as target:
        pids = json.loads(target.line())
        asleep = psutil.STATUS_SLEEPING
        waiting = [target.pid, pids["child"], pids["grandchild"], pids["program"]]
        wait_until(lambda: all(psutil.Process(pid).status() == asleep for pid in waiting), "that all wait")
        yield target, pids
        assert target.finish() == ""


def test_every_process_with_its_threads(family: tuple[Running, dict[str, int]]) -> None:
    target, pids = family
    result = cli.remoteprof("dump", "--children", target.pid)
    assert result.status == 0 and result.stderr == ""
    _, *parts = re.split(r"^ *process (\d+): ", result.stdout, flags=re.MULTILINE)
    shown = {int(pid): rest for pid, rest in zip(parts[::2], parts[1::2], strict=True)}
    # Parents before children, children in the order in which they were made.
    assert list(shown) == [target.pid, pids["child"], pids["grandchild"], pids["program"], pids["zombie"]]
    for pid, function in (
        (target.pid, "parent_waits"),
        (pids["child"], "child_waits"),
        (pids["grandchild"], "grandchild_waits"),
    ):
        first, rest = shown[pid].split("\n", 1)
        assert first.endswith("tests/targets/family.py"), first
        assert f"thread {pid} " in rest and f"{function} (" in rest and "<module> (" in rest
    assert shown[pids["program"]].startswith(f"sleep 1000\n    thread {pids['program']} 'sleep': sleeping\n")
    assert "zombie" in shown[pids["zombie"]]


def test_as_json_and_as_a_library(family: tuple[Running, dict[str, int]]) -> None:
    target, pids = family
    result = cli.remoteprof("dump", "--children", "--json", target.pid)
    assert result.status == 0, result.stderr
    told = {process["pid"]: process for process in json.loads(result.stdout)}
    parents = {pid: process["parent"] for pid, process in told.items()}
    assert parents == {
        target.pid: os.getpid(),
        pids["child"]: target.pid,
        pids["grandchild"]: pids["child"],
        pids["program"]: target.pid,
        pids["zombie"]: target.pid,
    }
    assert told[pids["program"]]["command"] == ["sleep", "1000"]
    assert [thread["thread_id"] for thread in told[pids["child"]]["threads"]] == [pids["child"]]
    assert told[pids["zombie"]]["threads"] == [] and "zombie" in told[pids["zombie"]]["error"]
    # Without native frames, what is not a Python cannot be read; the others are.
    python = {process.pid: process for process in dump_tree(target.pid, native=False)}
    assert list(python) == list(told)
    assert "not a Python" in python[pids["program"]].error
    assert [frame.function for frame in python[pids["child"]].stacks[0].frames][-2:] == ["child_waits", "<module>"]


def test_the_tree_that_it_runs_in_is_shown_without_itself(tmp_path: Path) -> None:
    script = tmp_path / "shell.sh"
    script.write_text(f'"{cli.COMMAND}" dump --children --json $$\ntrue\n')
    done = subprocess.run(["sh", script], capture_output=True, text=True, check=True)
    (shell,) = json.loads(done.stdout)
    assert shell["command"] == ["sh", str(script)] and len(shell["threads"]) == 1


def test_one_that_dies_meanwhile_does_not_hold_it_up() -> None:
    """Children end all the time; each dump ends too, and has the one that stays."""
    script = "while :; do /bin/true; done & echo ready; read line; kill $!"
    with started(["sh", "-c", script]) as target:
        for _ in range(10):
            found = dump_tree(target.pid)
            assert found[0].stacks and found[0].error == ""
            assert all(process.stacks or process.error for process in found)
        target.finish()


def test_no_such_process() -> None:
    cli.remoteprof("dump", "--children", 2**22 - 3).failed_with(3, "no process")
