"""Threads that sleep: the call they sleep in is their leaf, and none of them is stopped."""

from __future__ import annotations

from pathlib import Path

from support import cli, stats
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
