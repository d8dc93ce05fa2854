"""Trees: every descendant is recorded, whatever made it; what nobody saw is measured; nobody is harmed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import cli, pprof, stats
from support.recorder import processes, sampling
from support.targets import PATIENCE, gone, proc_status, program, started, wait_until

# The function in which each kind's descendants are busy.
KINDS = {
    "fork": "child_of_fork",
    "clone": "child_of_clone",
    "subprocess": "burn",
    "vfork": "burn",
    "pool-fork": "child_of_pool",
    "pool-spawn": "child_of_pool",
    "pool-forkserver": "child_of_pool",
    "daemon": "daemon",
}


def run(directory: Path, command: list[str], *options: str, text: str = "") -> tuple[int, str, cli.Recording]:
    """The status and output of CMD, and the recording."""
    path, numbers = directory / "tree.pb.gz", directory / "tree.json"
    arguments = [str(cli.COMMAND), "run", "-o", str(path), "--stats", str(numbers), *options, "--", *command]
    done = subprocess.run(arguments, input=text, capture_output=True, text=True, check=False, timeout=3 * PATIENCE)
    return done.returncode, done.stdout, cli.read_recording(cli.Result(0, "", done.stderr), path, numbers)


def faults(recording: cli.Recording) -> list[str]:
    """Broken identities: of the whole, of each process, and between both."""
    found = stats.faults(recording.stats, recording.profile)
    parts = recording.stats.get("processes", [])
    for part in parts:
        found += [f"pid {part['pid']}: {fault}" for fault in stats.faults(part)]
        rows = [sample for sample in recording.profile.samples if sample.labels["pid"] == part["pid"]]
        if len({one["pid"] for one in parts}) == len(parts):
            ticks = sum(sample.values["samples"] for sample in rows)
            if ticks != part["samples"] + part["pending_ticks"]:
                found.append(f"pid {part['pid']}: {ticks} in the samples column")
            cpu = sum(sample.values["cpu"] for sample in rows)
            if cpu != part["cpu_ns_sampled"] + part["unsampled_cpu_ns"]:
                found.append(f"pid {part['pid']}: {cpu} in the cpu column")
    if parts:
        for name in ("ticks", "thread_ticks", "samples", "cpu_ns_sampled", "cpu_ns_process", "unsampled_cpu_ns"):
            total = sum(part[name] for part in parts)
            if total != recording.stats[name]:
                found.append(f"{name}: {recording.stats[name]}, its parts {total}")
    return found


def labels(recording: cli.Recording, key: str) -> set[Any]:
    return {sample.labels.get(key) for sample in recording.profile.samples}


def busy(recording: cli.Recording, pid: int, function: str) -> float:
    """The CPU seconds of a process in a function."""
    rows = [sample for sample in recording.profile.samples if sample.labels["pid"] == pid]
    return sum(sample.values["cpu"] for sample in rows if function in sample.names()) / 1e9


def test_a_profile_of_each_process(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "each"
    status, output, recording = run(tmp_path, program("tree.py", "fork"), "-r", "200", "--all-output", str(folder))
    told = json.loads(output)
    assert status == 0
    parts = {path.name: pprof.load(path) for path in folder.iterdir()}
    assert len(parts) == len(recording.stats["processes"])
    assert set(told["busy"]) <= {int(name.removesuffix(".pb.gz").rpartition("-")[2]) for name in parts}
    for name, part in parts.items():
        [pid] = {sample.labels["pid"] for sample in part.samples}
        assert name.endswith(f"-{pid}.pb.gz")
        of_whole = sum(row.values["cpu"] for row in recording.profile.samples if row.labels["pid"] == pid)
        assert part.total("cpu") == of_whole
    assert sum(part.total("samples") for part in parts.values()) == recording.profile.total("samples")
    (tmp_path / "file").write_text("")
    arguments = ("run", "--all-output", tmp_path / "file", "--", "true")
    cli.remoteprof(*arguments, cwd=tmp_path).failed_with(1, "cannot make the folder")


@pytest.mark.parametrize("kind", KINDS)
def test_descendants_of_every_kind(kind: str, tmp_path: Path) -> None:
    status, output, recording = run(tmp_path, program("tree.py", kind), "-r", "200")
    told = json.loads(output)
    assert status == 0
    assert faults(recording) == []
    pids = labels(recording, "pid")
    assert recording.stats["pid"] in pids and set(told["busy"]) < pids, "a process is missing"
    for pid in told["busy"]:
        # One worker of a pool may have done most of the work.
        least = 0.15 if kind.startswith("pool") else 0.2
        assert busy(recording, pid, KINDS[kind]) > least, f"pid {pid} was busy in {KINDS[kind]}"
        assert labels(recording, "process") == {Path(sys.executable).name}
    used, counted = told["seconds"], recording.stats["cpu_ns_process"] / 1e9
    # What the interpreter uses at its end, after it has told, is not in `seconds`; nor are processes that it did not
    # wait for itself.
    elsewhere = {"daemon": 0.3, "pool-forkserver": 1.2}.get(kind, 0)
    assert (used + elsewhere) * 0.99 <= counted <= (used + elsewhere) * 1.02 + (0.5 if elsewhere else 0.1)
    assert recording.stats["unseen_cpu_ns"] <= 0.05 * recording.stats["cpu_ns_process"]


BURN = " ".join(program("tree.py", "quiet"))


@pytest.mark.parametrize(
    "command",
    (
        program("tree.py", "fork"),
        program("tree.py", "short"),
        # A parent ends with its last child: both are met as ended at one time.
        ["sh", "-c", f"sh -c 'sh -c \"{BURN}; :\"; :'; :"],
        ["sh", "-c", f"({BURN}; true) & ({BURN} & ); wait; sleep 1; sh -c '{BURN}'"],
    ),
    ids=("fork", "short", "nested", "orphans"),
)
def test_the_tree_is_what_the_kernel_counted(command: list[str], tmp_path: Path) -> None:
    """Sampled and unseen together are the CPU time of the tree, which the kernel tells who waits for all of it."""
    script = (
        "import json, os, resource, subprocess, sys, ctypes\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"  # orphans become children of this one
        "subprocess.run(sys.argv[1:], check=True)\n"
        "while True:\n"
        "    try: os.wait()\n"
        "    except ChildProcessError: break\n"
        "used = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]\n"
        "os.write(2, json.dumps([one.ru_utime + one.ru_stime for one in used]).encode())\n"
        "os._exit(0)\n"
    )
    _, _, recording = run(tmp_path, [sys.executable, "-c", script, *command], "-q")
    used = sum(json.loads(recording.result.stderr))
    counted = (recording.stats["cpu_ns_sampled"] + recording.stats["unseen_cpu_ns"]) / 1e9
    assert used * 0.99 <= counted <= used * 1.01 + 0.01
    assert faults(recording) == []


def test_short_lived_children_are_measured(tmp_path: Path) -> None:
    """300 processes that live for a millisecond: few are seen, and all their CPU time is there."""
    status, output, recording = run(tmp_path, program("tree.py", "short"))
    told = json.loads(output)
    assert status == 0
    assert faults(recording) == []
    numbers = recording.stats
    assert numbers["unseen_cpu_ns"] > 0 and numbers["unsampled_cpu_ns"] > 0
    assert told["seconds"] * 0.98 <= numbers["cpu_ns_process"] / 1e9 <= told["seconds"] * 1.02 + 0.1
    names = {sample.names()[0] for sample in recording.profile.samples if sample.names()[0].startswith("[unsampled: ")}
    assert names, "what was not sampled is not shown"
    assert all(re.fullmatch(r"\[unsampled: (short-lived|true|python\S*)\]", name) for name in names), names


def test_a_pipeline(tmp_path: Path) -> None:
    """Output, status and names of a shell's pipeline, one process of which ends by itself and one by a signal."""
    burn = " ".join(program("tree.py", "quiet"))
    command = ["sh", "-c", f"({burn}; echo one) | cat | sed s/one/two/; yes | head -n 1; exit 7"]
    status, output, recording = run(tmp_path, command, "-r", "200")
    assert (status, output) == (7, "two\ny\n")
    assert faults(recording) == []
    assert {"sh", "cat", "sed"} <= labels(recording, "process")
    assert recording.profile.with_function("burn", "cpu") > 0.2e9


def test_births_are_told_by_the_kernel(tmp_path: Path) -> None:
    """Each of these is born in a quiet moment. Needs root in the first namespaces."""
    command = ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 0.05; done"]
    _, _, recording = run(tmp_path, command)
    assert faults(recording) == []
    assert 10 <= recording.stats["told_births"] <= 20
    alone = run(tmp_path, command, "--no-children")[2]
    assert alone.stats["told_births"] == 0


def test_names_narrow(tmp_path: Path) -> None:
    burn = " ".join(program("tree.py", "quiet"))
    command = ["sh", "-c", f"sleep 0.5 & {burn} & wait"]
    _, _, recording = run(tmp_path, command, "--children-match", "^sl")
    assert labels(recording, "process") == {"sh", "sleep"}
    assert recording.profile.with_function("burn", "cpu") == 0
    assert faults(recording) == []
    result = cli.remoteprof("run", "--children-match", "(", "--", "true")
    result.failed_with(2, "regular expression")
    result = cli.remoteprof("run", "--no-children", "--children-match", "x", "--", "true")
    result.failed_with(2)


def test_without_children(tmp_path: Path) -> None:
    status, output, recording = run(tmp_path, program("tree.py", "fork"), "--no-children")
    assert status == 0
    assert labels(recording, "pid") == {recording.stats["pid"]} and labels(recording, "process") == {None}
    assert "processes" not in recording.stats
    assert not set(json.loads(output)["busy"]) & labels(recording, "pid")
    assert stats.faults(recording.stats, recording.profile) == []


@pytest.mark.parametrize("options", ((), ("--children",)), ids=("alone", "with children"))
def test_attach(options: tuple[str, ...], tmp_path: Path) -> None:
    """A parent that has a child, and forks another later."""
    source = tmp_path / "forks.py"
    source.write_text(
        "import os, sys, time\n"
        "def early():\n    time.sleep(600)\n"
        "def late():\n    end = time.process_time() + 0.3\n    while time.process_time() < end: pass\n"
        "one = os.fork()\n"
        "if not one: early()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "two = os.fork()\n"
        "if not two:\n    late()\n    os._exit(0)\n"
        "os.waitpid(two, 0)\n"
        "print(one, two, flush=True)\n"
        "sys.stdin.readline()\n"
        "os.kill(one, 9)\n"
    )
    path, numbers = tmp_path / "out.pb.gz", tmp_path / "stats.json"
    with started([sys.executable, source]) as target:
        recorder = cli.begin("attach", target.pid, "-d", "1h", "-o", path, "--stats", numbers, *options)
        sampling(recorder, wakeups=50)
        target.send("\n")
        one, two = map(int, target.line().split())
        recorder.send_signal(signal.SIGTERM)
        recording = cli.ended(recorder, path, numbers)
        assert proc_status(one)["TracerPid"] == "0"
        target.finish()
        assert target.process.returncode == 0
    assert faults(recording) == []
    if not options:
        assert labels(recording, "pid") == {target.pid}
        return
    assert labels(recording, "pid") == {target.pid, one, two}
    assert recording.stats["pid"] == target.pid
    rows = [sample for sample in recording.profile.samples if sample.labels["pid"] == one]
    assert all("early" in sample.names() for sample in rows), "the child that was there"
    assert busy(recording, two, "late") > 0.2


def test_a_daemon_that_stays_is_let_go(tmp_path: Path) -> None:
    """CMD's end ends the recording; who lives on is seen until then, and runs on."""
    source = tmp_path / "leaves.py"
    source.write_text(
        "import os, time\n"
        "ours, theirs = os.pipe()\n"
        "if not os.fork():\n"
        "    os.setsid()\n"
        "    if not os.fork():\n"
        "        os.closerange(0, 3)\n"
        "        os.write(theirs, str(os.getpid()).encode())\n"
        "        time.sleep(600)\n"
        "    os._exit(5)\n"
        "assert os.wait()[1] == 5 << 8\n"
        "print(os.read(ours, 20).decode(), flush=True)\n"
        "time.sleep(0.3)\n"
        "raise SystemExit(9)\n"
    )
    status, output, recording = run(tmp_path, [sys.executable, str(source)])
    pid = int(output)
    try:
        assert status == 9
        assert pid in labels(recording, "pid")
        assert faults(recording) == []
        assert proc_status(pid)["State"][0] == "S" and proc_status(pid)["TracerPid"] == "0"
    finally:
        os.kill(pid, signal.SIGKILL)


def test_orphans_that_end_are_not_cmd(tmp_path: Path) -> None:
    """An orphan's status is nobody's: CMD goes on, its own status counts, and no zombie is left."""
    command = ["sh", "-c", "(sleep 0.1 & exit 3); (true & ); sleep 0.5; echo on; exit 4"]
    status, output, recording = run(tmp_path, command, "-r", "500")
    assert (status, output) == (4, "on\n")
    assert faults(recording) == []


def test_killed_with_a_tree(tmp_path: Path) -> None:
    """SIGKILL to remoteprof: all descendants run on, and no one traces them."""
    source = tmp_path / "family.py"
    source.write_text(
        "import os, sys, time\n"
        "pids = []\n"
        "for _ in range(4):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        while True: sum(range(1000))\n"
        "    pids.append(pid)\n"
        "print(os.getpid(), *pids, flush=True)\n"
        "time.sleep(600)\n"
    )
    for victims in (slice(0, 1), slice(1, 2), slice(0, 2)):
        recorder = cli.begin("run", "-r", "2000", "-q", "-o", tmp_path / "x.pb.gz", "--", sys.executable, source)
        assert recorder.stdout is not None
        family = [int(word) for word in recorder.stdout.readline().split()]
        try:
            sampling(recorder, wakeups=200)
            ours = [pid for pid in processes(recorder.pid) if pid not in family]
            assert len(ours) == 2
            for pid in ours[victims]:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda ours=ours, victims=victims: all(map(gone, ours[victims])), "the end of remoteprof")  # type: ignore[misc]

            def free(family: list[int] = family) -> bool:
                facts = [proc_status(pid) for pid in family]
                return all(fact["State"][0] in "RS" and fact["TracerPid"] == "0" for fact in facts)

            wait_until(free, "a family that runs, untraced")
        finally:
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            recorder.kill()
            recorder.communicate(timeout=PATIENCE)


def test_each_life_is_counted_once(tmp_path: Path) -> None:
    """Processes that come and go all the time: each has a pid and figures of its own."""
    source = tmp_path / "many.py"
    source.write_text(
        "import os, time\n"
        "for _ in range(60):\n"
        "    if not os.fork():\n"
        "        time.sleep(0.05)\n"
        "        os._exit(0)\n"
        "    time.sleep(0.01)\n"
        "while True:\n"
        "    try: os.wait()\n"
        "    except ChildProcessError: break\n"
    )
    status, _, recording = run(tmp_path, [sys.executable, str(source)])
    assert status == 0
    parts = recording.stats["processes"]
    assert len({part["pid"] for part in parts}) == len(parts) > 30
    assert faults(recording) == []
