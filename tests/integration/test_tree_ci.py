"""What CI jobs run, as a tree: test workers, a build, scripts, a server that forks beforehand. Sampled and unseen
together are the CPU time that the kernel counted; statuses and signals are as they would be without us."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support import cli, pprof, stats
from support.targets import PATIENCE, program

RUNS = 200 if cli.LONG else 8
SOURCES = 50
TESTS = """
import pytest

def work(number):
    value = number
    for step in range(150_000):
        value = (value * 31 + step) & 0xFFFFF
    return value

@pytest.mark.parametrize("number", range(16))
def test_work(number):
    assert work(number) >= 0
"""
SCRIPT = """#!/bin/sh
set -e
for word in one two three; do echo "$word" | tr a-z A-Z; done
for number in 1 2 3; do "$1" -S -c 'sum(i * i for i in range(400_000))'; done
seq 200000 | sort -rn | gzip -c | gunzip -c | tail -n 1
exit 3
"""
NODE = """
const test = require("node:test");
function hotFunction(count) {
    let value = 1;
    for (let step = 0; step < count; step++) value = (value * 31 + step) & 0xfffff;
    return value;
}
test("work", () => { for (let turn = 0; turn < 300; turn++) if (hotFunction(1e6) < 0) throw Error("less"); });
"""


def workers(folder: Path) -> list[str]:
    (folder / "test_work.py").write_text(TESTS)
    return [sys.executable, "-m", "pytest", "-q", "-n", "4", "-p", "no:cacheprovider", "test_work.py"]


def build(folder: Path) -> list[str]:
    for number in range(SOURCES):
        text = f'#include <stdio.h>\nint f{number}(int x) {{ return printf("%d", x * {number}); }}\n'
        (folder / f"f{number}.c").write_text(text)
    (folder / "Makefile").write_text(
        "OBJECTS = $(patsubst %.c,%.o,$(wildcard f*.c))\n"
        "lib.a: $(OBJECTS)\n\tar rcs $@ $^\n"
        "%.o: %.c\n\tgcc -O2 -c -o $@ $<\n"
    )
    return ["make", "-s", "-j4"]


def script(folder: Path) -> list[str]:
    (folder / "ci.sh").write_text(SCRIPT)
    (folder / "ci.sh").chmod(0o755)
    return ["./ci.sh", sys.executable]


def npm(folder: Path) -> list[str]:
    assert shutil.which("npm") and shutil.which("node"), "no npm: scripts/setup-readers installs it"
    (folder / "work.test.js").write_text(NODE)
    (folder / "package.json").write_text(json.dumps({"name": "work", "scripts": {"test": "node work.test.js"}}))
    return ["npm", "test", "--silent"]


def prefork(_: Path) -> list[str]:
    return program("prefork.py", "150")


COUNTING = """
import ctypes, json, os, resource, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans become children of this one
status = subprocess.run(sys.argv[2:]).returncode
while True:
    try: os.wait()
    except ChildProcessError: break
used = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
with open(sys.argv[1], "w") as file:
    json.dump(sum(one.ru_utime + one.ru_stime for one in used), file)
os._exit(status)
"""
KINDS = {
    "pytest": (workers, 0, {"python"}, "work"),
    "make": (build, 0, {"make", "cc1", "as"}, ""),
    "script": (script, 3, {"sort", "gzip"}, "<genexpr>"),
    "npm": (npm, 0, {"node", "sh"}, "hotFunction"),
    "prefork": (prefork, 0, {"python"}, "handle"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_cpu_time_of_a_tree_is_there(kind: str, tmp_path: Path) -> None:
    """CMD as one would give it, in a process that asks the kernel in the end what all of it took."""
    make, wanted, processes, function = KINDS[kind]
    command = make(tmp_path)
    path, numbers, told = tmp_path / "tree.pb.gz", tmp_path / "tree.json", tmp_path / "used.json"
    arguments: list[str | Path] = [
        cli.COMMAND,
        "run",
        "-r",
        "200",
        "-o",
        path,
        "--stats",
        numbers,
        "--",
        sys.executable,
        "-c",
        COUNTING,
    ]
    environment = {**os.environ, "NODE_OPTIONS": "--perf-basic-prof"}
    done = subprocess.run(
        [*arguments, told, *command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == wanted, done.stderr
    recording = cli.read_recording(cli.Result(0, "", done.stderr), path, numbers)
    for part in recording.stats["processes"]:
        Path(f"/tmp/perf-{part['pid']}.map").unlink(missing_ok=True)  # as Node.js leaves it
    assert stats.faults(recording.stats, recording.profile) == []
    used = json.loads(told.read_text()) * 1e9
    counted = recording.stats["cpu_ns_sampled"] + recording.stats["unseen_cpu_ns"]
    assert abs(counted - used) <= 0.02 * used, f"{counted / 1e9:.3f} s, and the kernel says {used / 1e9:.3f} s"
    assert recording.stats["unseen_cpu_ns"] == recording.stats["cpu_ns_process"] - recording.stats["cpu_ns_sampled"]
    seen = {str(sample.labels["process"]) for sample in recording.profile.samples}
    assert all(any(name.startswith(process) for name in seen) for process in processes), seen
    if function:
        frames = (frame for sample in recording.profile.samples for frame in sample.frames)
        assert any(function in frame.qualified for frame in frames), "what the workers do is not there"
    print(
        f"{kind}: {used / 1e9:.2f} s, of which unseen {recording.stats['unseen_cpu_ns'] / used:.1%}, {len(seen)} names"
    )


def test_statuses_and_signals_over_many_runs(tmp_path: Path) -> None:
    """No status is changed, no signal is lost, no zombie is left, whatever CMD's end is."""
    us = psutil.Process()
    before = {child.pid for child in us.children(recursive=True)}
    for run in range(RUNS):
        end = (0, 1, 77, 255, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGUSR1, 3)[run % 8]
        output = tmp_path / f"{run}.pb.gz"
        command = ["run", "-q", "-r", "1000", "-o", str(output), "--", *program("statuses.py", str(end))]
        done = cli.remoteprof(*command)
        assert (done.stdout, done.stderr) == ("fine\n", ""), run
        assert done.status == (end if end >= 0 else 128 - end), run
        assert pprof.load(output).total("samples") > 0
    assert {child.pid for child in us.children(recursive=True)} == before


def test_a_signal_to_remoteprof_is_passed_on_each_time(tmp_path: Path) -> None:
    """SIGTERM reaches CMD, which ends as it wants to."""
    source = tmp_path / "ends.py"
    source.write_text(
        "import signal, sys\n"
        "def end(*_):\n    print('ended', flush=True)\n    sys.exit(9)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    for run in range(max(4, RUNS // 4)):
        process = cli.begin("run", "-q", "-r", "1000", "-o", tmp_path / "x.pb.gz", "--", sys.executable, "-S", source)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, output, errors) == (9, "ended\n", ""), run
