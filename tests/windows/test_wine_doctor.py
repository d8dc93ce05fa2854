"""doctor on Windows, and targets that cannot be recorded there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from support import wine
from support.targets import TARGETS

Findings = dict[str, dict[str, str]]


def doctor(version: str, *arguments: object, status: int = 0) -> tuple[Findings, Findings]:
    """What it finds of the machine and of the process, by name."""
    done = wine.remoteprof(version, "doctor", *arguments, "--json")
    assert done.status == status, done.stderr
    assert done.stderr == ""
    told = json.loads(done.stdout)
    machine, process = ({one["name"]: one for one in told.get(key, [])} for key in ("machine", "process"))
    for one in [*machine.values(), *process.values()]:
        assert one["status"] in ("ok", "limit") and one["fact"]
    return machine, process


def test_the_machine_and_a_python() -> None:
    for version in ("3.10", wine.LATEST):
        with wine.target(version, TARGETS / "shares.py") as target:
            machine, process = doctor(version, target.pid)
            assert target.running.process.poll() is None
        assert machine["trial"]["status"] == "ok", machine["trial"]
        assert machine["system"]["status"] == "limit" and "by wine" in machine["system"]["fact"]
        assert machine["threads"]["status"] == "limit", "wine tells no states of threads"
        assert machine["left behind"]["status"] == "ok"
        assert machine["privileges"]["fact"] and machine["integrity"]["fact"]
        assert process["process"]["fact"] == f"{target.pid} (python)"
        assert f"CPython {version}" in process["runtime"]["fact"]
        assert re.match(r"\d+ threads, read and let go", process["access"]["fact"])
        assert re.search(r"python\.exe, build id [0-9A-F]{33,}$", process["program"]["fact"]), process["program"]
        assert re.match(r"\d{2} are listed", process["modules"]["fact"])


def test_as_text() -> None:
    done = wine.remoteprof(wine.LATEST, "doctor")
    assert done.status == 0 and done.stderr == ""
    assert "ok     version" in done.stdout and "\x1b" not in done.stdout


def test_no_such_process_and_one_that_nobody_may_open(tmp_path: Path) -> None:
    wine.remoteprof(wine.LATEST, "doctor", 0x7FFFFFF0).failed_with(3, "no process")
    with wine.target(wine.LATEST, TARGETS / "windows_closed.py") as target:
        _, process = doctor(wine.LATEST, target.pid, status=4)
        assert process["access"]["status"] == "limit" and "not permitted" in process["access"]["fact"]
        assert "administrator" in process["access"]["mend"]
        output = tmp_path / "x.pb.gz"
        for command in (("attach", "-o", wine.path_of(output)), ("dump",), ("modules",)):
            wine.remoteprof(wine.LATEST, *command, target.pid).failed_with(4, "not permitted")
        assert not output.exists()
        assert target.running.process.poll() is None


def test_a_process_that_ends_in_between(tmp_path: Path) -> None:
    """At any moment: while remoteprof starts, opens it, looks at its modules, or records it."""
    script = tmp_path / "short.py"
    script.write_text("import sys, time\nprint('ready', flush=True)\ntime.sleep(float(sys.argv[1]))\n")
    statuses = []
    for command in ("dump", "modules", "attach"):
        for step in range(3):
            options = ("-d", "1", "-o", wine.path_of(tmp_path / "x.pb.gz")) if command == "attach" else ()
            with wine.target(wine.LATEST, script, 0.2 + step * 0.35) as target:
                done = wine.remoteprof(wine.LATEST, command, target.pid, *options)
            statuses.append(done.status)
            if done.status:
                done.failed_with(3)
    assert set(statuses) <= {0, 3} and 3 in statuses, statuses
