"""Threads that sleep: the call they sleep in is their leaf, and none of them is stopped."""

from __future__ import annotations

import signal
import sys
from collections import defaultdict
from pathlib import Path

from support import cli, stats
from support.recorder import sampling, sampling_on
from support.targets import compiled, started, thread_states, wait_until

CALLS = {
    "main": {"[syscall: pause]"},
    "in_epoll": {"[syscall: epoll_wait]"},
    "in_poll": {"[syscall: poll]"},
    "in_read": {"[syscall: read]"},
    "in_sleep": {"[syscall: nanosleep]", "[syscall: clock_nanosleep]"},
    "in_lock": {"[syscall: futex]"},
    "in_vfork": {"[syscall: vfork]"},
}


def test_sleeping_threads(tmp_path: Path) -> None:
    binary = compiled("native/sleeps.c", "-pthread")
    with started([binary]) as target:
        # Seven threads, one of them in an uninterruptible wait for its vfork child.
        wait_until(lambda: sorted(thread_states(target.pid).values()) == ["D", *"SSSSSS"], "seven threads asleep")
        recording = cli.attach(target.pid, tmp_path, 1, 1000)
        dumped = cli.remoteprof("dump", target.pid)
        assert "D" in thread_states(target.pid).values()
    numbers, profile = recording.stats, recording.profile
    assert stats.faults(numbers, profile) == []
    assert numbers["complete"] == numbers["samples"] > 0, numbers["cut"]
    assert numbers["pause_us"]["count"] == 0, "a sleeping thread was stopped"
    seen = {}
    for sample in profile.samples:
        names = sample.names()
        if sample.values["samples"]:
            function = next(name for name in CALLS if name in names)
            seen[function] = names[-1]
            assert sample.labels["state"] == ("disk" if function == "in_vfork" else "sleeping")
            assert len(names) > 3 and names[-2] != function, names
    assert seen.keys() == CALLS.keys()
    for function, leaf in seen.items():
        assert leaf in CALLS[function], seen
    for function in CALLS:
        assert function in dumped.stdout, dumped.stdout
        assert seen[function] in dumped.stdout, dumped.stdout


def recorded(source: str, threads: int, done: str, folder: Path) -> cli.Recording:
    """The recording of a crowd of threads: let go once it is sampled, and recorded on when it has said `done`."""
    path, numbers = folder / "out.pb.gz", folder / "out.json"
    with started([sys.executable, "-c", source, str(threads)]) as target:
        recorder = cli.begin("attach", target.pid, "-d", "1h", "-o", path, "--stats", numbers)
        sampling(recorder)
        target.send("\n")
        assert target.line() == done
        sampling_on(recorder)
        recorder.send_signal(signal.SIGTERM)
        recording = cli.ended(recorder, path, numbers)
        assert target.finish() == ""
    assert stats.faults(recording.stats, recording.profile) == []
    return recording


CROWD = 200
MOVES = """
import sys, threading
gate, moved, never = threading.Event(), threading.Semaphore(0), threading.Event()
def before():
    gate.wait()
def after():
    moved.release()
    never.wait()
def sleeper():
    before()
    after()
for _ in range(int(sys.argv[1])):
    threading.Thread(target=sleeper, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
gate.set()
for _ in range(int(sys.argv[1])):
    moved.acquire()
print("moved", flush=True)
sys.stdin.readline()
"""


def test_a_crowd_that_sleeps_on_and_moves(tmp_path: Path) -> None:
    """Nearly all of its ticks need no look at a stack, but each thread's one move is seen."""
    recording = recorded(MOVES, CROWD, "moved", tmp_path)
    seen: dict[int, dict[str, int]] = defaultdict(lambda: {"before": 0, "after": 0})
    for sample in recording.profile.samples:
        for name in {"before", "after"}.intersection(sample.names()):
            seen[int(sample.labels["thread_id"])][name] += sample.values["samples"]
    assert len(seen) == CROWD
    assert all(counts["before"] and counts["after"] for counts in seen.values()), seen
    looks = recording.stats["caches"]["sleeping stacks"]
    assert looks["hits"] > 5 * looks["misses"] > 0


WORKERS = 70
POOL = """
import sys, threading, time
turns = [threading.Event() for _ in range(int(sys.argv[1]))]
done = threading.Semaphore(0)
def work():
    end = time.thread_time() + 0.15
    while time.thread_time() < end:
        sum(range(500))
def worker(turn):
    while True:
        turn.wait()
        turn.clear()
        work()
        done.release()
for turn in turns:
    threading.Thread(target=worker, args=(turn,), daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
for turn in turns:
    turn.set()
    done.acquire()
print("done", flush=True)
sys.stdin.readline()
"""


def test_work_that_goes_round_in_a_crowd_is_met(tmp_path: Path) -> None:
    """Each thread works once, after a long sleep, and is not looked at in each tick until then."""
    recording = recorded(POOL, WORKERS, "done", tmp_path)
    assert stats.cpu_fault(recording.stats) == ""
    samples = [sample for sample in recording.profile.samples if "work" in sample.names()]
    met = {sample.labels["thread_id"] for sample in samples if sample.values["samples"]}
    assert len(met) > 0.9 * WORKERS, len(met)
    looks = recording.stats["caches"]["sleeping stacks"]
    assert looks["hits"] > 5 * looks["misses"] > 0
