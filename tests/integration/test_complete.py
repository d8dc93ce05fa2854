"""Complete and honest: every tick is accounted for, and the CPU time is the kernel's."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support import cli, stats
from support.recorder import sampling
from support.targets import program, started

SECONDS = 10 if cli.LONG else 4


@pytest.mark.parametrize("rate", (100, 1000, 5000))
@pytest.mark.parametrize(("python_threads", "c_threads"), ((1, 0), (4, 0), (0, 1), (2, 2), (8, 4)))
def test_every_tick_is_accounted_for(
    python_threads: int, c_threads: int, rate: int, waits: Path, tmp_path: Path
) -> None:
    with started(program("threads.py", waits, str(python_threads), str(c_threads))) as target:
        recording = cli.attach(target.pid, tmp_path, SECONDS, rate)
        assert target.process.poll() is None
    numbers = recording.stats
    assert stats.faults(numbers, recording.profile) == []
    assert numbers["samples"] > 0
    assert numbers["unreadable"] == 0
    assert numbers["truncated"] <= numbers["samples"] * 0.001
    assert numbers["gone"] == 0, "no thread ended"
    # Ticks come from the thread-ticks of rounds: at most one for each thread there was, the main thread included.
    assert numbers["thread_ticks"] <= numbers["ticks"] * (1 + python_threads + c_threads)
    assert stats.cpu_fault(numbers) == ""
    assert numbers["cpu_ns_process"] > 0.2 * numbers["duration_ns"], "the target was not busy"
    threads = {sample.labels["thread_id"] for sample in recording.profile.samples}
    assert len(threads) == 1 + python_threads + c_threads
    wall = {thread: 0 for thread in threads}
    for sample in recording.profile.samples:
        wall[sample.labels["thread_id"]] += sample.values["wall"]
    for thread, time in wall.items():
        assert time <= numbers["duration_ns"] * 1.02 + 2e9 / rate, f"thread {thread}: more wall time than there was"


def test_threads_that_come_and_go(tmp_path: Path) -> None:
    source = tmp_path / "churn.py"
    source.write_text(
        "import threading\n"
        "def busy():\n"
        "    value = 1\n"
        "    for step in range(60000):\n"
        "        value = (value * 31 + step) & 0xFFFFF\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    threads = [threading.Thread(target=busy) for _ in range(5)]\n"
        "    [thread.start() for thread in threads]\n"
        "    [thread.join() for thread in threads]\n",
        encoding="utf-8",
    )
    with started([*program("idle.py")[:1], source]) as target:
        recording = cli.attach(target.pid, tmp_path, SECONDS, 1000)
        assert target.process.poll() is None
    numbers = recording.stats
    assert stats.faults(numbers, recording.profile) == []
    assert recording.profile.with_function("busy", "samples") > 0
    assert numbers["unseen_cpu_ns"] >= 0
    assert numbers["cpu_ns_sampled"] <= numbers["cpu_ns_process"]


def test_a_target_that_ends_early_gives_its_profile(tmp_path: Path) -> None:
    source = tmp_path / "short.py"
    source.write_text(
        "import sys\n"
        "def busy():\n"
        "    value = 1\n"
        "    for step in range(10_000_000):\n"
        "        value = (value * 31 + step) & 0xFFFFF\n"
        "print('ready', flush=True)\n"
        "busy()\n",
        encoding="utf-8",
    )
    with started([*program("idle.py")[:1], source]) as target:
        recording = cli.attach(target.pid, tmp_path, "10m", 1000)
        assert target.process.wait() == 0
    assert stats.faults(recording.stats, recording.profile) == []
    assert recording.profile.with_function("busy", "cpu") > 0.5 * recording.profile.total("cpu")


@pytest.mark.parametrize("name", ("SIGINT", "SIGTERM"))
def test_a_signal_ends_the_recording_and_writes_it(name: str, tmp_path: Path) -> None:
    path, numbers = tmp_path / "out.pb.gz", tmp_path / "stats.json"
    with started(program("split.py")) as target:
        recorder = cli.begin("attach", target.pid, "-d", "1h", "-r", 1000, "-o", path, "--stats", numbers)
        sampling(recorder)
        recorder.send_signal(getattr(signal, name))
        recording = cli.ended(recorder, path, numbers)
    assert stats.faults(recording.stats, recording.profile) == []
    assert recording.profile.with_function("main", "samples") > 0
    assert recording.result.stdout == ""
