"""Harmless: whatever happens to the profiler, the target runs on as if nothing had been; no wait of it is disturbed."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from support import cli, stats
from support.recorder import all_gone, processes, sampling
from support.targets import proc_status, program, started, thread_states, wait_until

KILLS = 500 if cli.LONG else 25
STEPS = 3


def free(pid: int) -> bool:
    """No thread of it is stopped or traced."""
    return (
        all(state in ("R", "S", "D") for state in thread_states(pid).values()) and proc_status(pid)["TracerPid"] == "0"
    )


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """SIGKILL to the supervisor, to the sampler, or to both: the target is whole, and its output what it must be."""
    rng = random.Random(7)
    sampled = 0
    with started(program("sequence.py")) as undisturbed, started(program("sequence.py")) as target:
        for run in range(KILLS):
            recorder = cli.begin("attach", target.pid, "-r", 5000, "-d", "1h", "-q", "-o", tmp_path / "killed.pb.gz")
            target.send(f"{STEPS}\n")
            if run % 5:
                sampling(recorder, wakeups=rng.randrange(20, 400))
                sampled += 1
            time.sleep(rng.uniform(0, 0.05))
            victims = processes(recorder.pid)
            # Before there is a sampler only the supervisor can be killed.
            chosen = (victims[:1], victims[1:], victims)[run % 3] or victims
            for pid in chosen:
                os.kill(pid, signal.SIGKILL)
            recorder.communicate(timeout=60)
            wait_until(functools.partial(all_gone, victims), f"the end of remoteprof's processes (run {run})")
            wait_until(lambda: free(target.pid), f"a target neither stopped nor traced (run {run})")
            undisturbed.send(f"{STEPS}\n")
            assert target.line() == undisturbed.line(), f"the output changed (run {run})"
        assert target.finish() == ""
        assert target.process.returncode == 0
    assert sampled > KILLS // 2
    assert not list(tmp_path.glob("*")), "a half-written profile was left"


def test_output_unchanged_while_sampled(version: str, tmp_path: Path) -> None:
    """Threads, timers, sockets and pipes under 5 kHz: the same output as without."""
    with started(program("sequence.py", version=version)) as plain:
        plain.send("150\n")
        expected = plain.line()
    with started(program("sequence.py", version=version)) as target:
        recorder = cli.begin("attach", target.pid, "-r", 5000, "-d", "1h", "-q", "-o", tmp_path / "out.pb.gz")
        sampling(recorder)
        target.send("150\n")
        assert target.line() == expected
        recorder.send_signal(signal.SIGTERM)
        _, errors = recorder.communicate(timeout=60)
        assert recorder.returncode == 0, errors
        assert free(target.pid)
        assert target.finish() == ""
        assert target.process.returncode == 0


def test_no_wait_is_broken(waits: Path, tmp_path: Path) -> None:
    """epoll_wait, semop, sigtimedwait, recv with a timeout and the like see no EINTR at 1 kHz."""
    with started(program("waits.py", waits)) as target:
        recording = cli.attach(target.pid, tmp_path, 60 if cli.LONG else 8, 1000)
        counts = json.loads(target.finish())
    print(counts, recording.stats["syscalls_restarted"], recording.stats["pause_us"])
    assert {kind: count["interrupted"] for kind, count in counts.items()} == dict.fromkeys(counts, 0)
    assert all(count["waits"] >= 100 for count in counts.values()), counts
    assert recording.stats["pause_us"]["count"] > 100, "nothing was stopped: the test shows nothing"
    assert stats.faults(recording.stats, recording.profile) == []


@pytest.mark.parametrize(
    ("kind", "name"),
    (
        (0, "epoll_wait"),
        (1, "epoll_pwait"),
        (2, "epoll_pwait2"),
        (3, "semop"),
        (4, "semtimedop"),
        (5, "sigtimedwait"),
        (6, "recv"),
        (7, "io_getevents"),
    ),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_own_signals_still_break_waits(kind: int, name: str, waits: Path, tmp_path: Path) -> None:
    """10,000 waits that the program's own SIGUSR1 must break, sampled at 5 kHz: each is broken."""
    rounds = 10_000
    path, numbers = tmp_path / "out.pb.gz", tmp_path / "stats.json"
    with started(program("eintrs.py", waits, str(kind), str(rounds))) as target:
        recorder = cli.begin("attach", target.pid, "-r", 5000, "-d", "1h", "-q", "-o", path, "--stats", numbers)
        sampling(recorder)
        target.send("go\n")
        assert int(target.line(patience=300)) == rounds, name
        recorder.send_signal(signal.SIGTERM)
        recording = cli.ended(recorder, path, numbers)
    assert recording.stats["pause_us"]["count"] > 20, "nothing was stopped: the test shows nothing"


def test_stopped_target_stays_stopped(tmp_path: Path) -> None:
    with started(program("idle.py")) as target:
        os.kill(target.pid, signal.SIGSTOP)
        wait_until(lambda: set(thread_states(target.pid).values()) == {"T"}, "a stopped target")
        recording = cli.attach(target.pid, tmp_path, 1, 1000)
        assert set(thread_states(target.pid).values()) == {"T"}
        assert stats.faults(recording.stats, recording.profile) == []
        os.kill(target.pid, signal.SIGCONT)
        wait_until(lambda: set(thread_states(target.pid).values()) <= {"S", "R"}, "a target that runs again")
        assert target.finish() == ""
        assert target.process.returncode == 0


def test_stopped_while_sampled(tmp_path: Path) -> None:
    """SIGSTOP and SIGCONT in the middle of sampling a busy target: both do what they do."""
    with started(program("split.py")) as target:
        recorder = cli.begin("attach", target.pid, "-r", 5000, "-d", "1h", "-q", "-o", tmp_path / "out.pb.gz")
        sampling(recorder)
        for _ in range(50):
            os.kill(target.pid, signal.SIGSTOP)
            wait_until(lambda: set(thread_states(target.pid).values()) == {"T"}, "a target that stays stopped")
            os.kill(target.pid, signal.SIGCONT)
            wait_until(lambda: not set(thread_states(target.pid).values()) & {"T"}, "a target that runs again")
        os.kill(target.pid, signal.SIGSTOP)
        recorder.send_signal(signal.SIGTERM)
        _, errors = recorder.communicate(timeout=60)
        assert recorder.returncode == 0, errors
        wait_until(lambda: set(thread_states(target.pid).values()) == {"T"}, "a target that is left stopped")
        os.kill(target.pid, signal.SIGCONT)
        assert "spent" in target.terminate()


def test_thread_that_cannot_be_stopped(waits: Path, tmp_path: Path) -> None:
    """A vfork parent (state D) holds up neither the recording nor the samples of the others."""
    with started(program("vforks.py", waits)) as target:
        recording = cli.attach(target.pid, tmp_path, 4, 1000)
        wait_until(lambda: free(target.pid), "a target that is free again")
        assert target.process.poll() is None
    assert stats.faults(recording.stats, recording.profile) == []
    rows = [sample for sample in recording.profile.samples if "busy" in sample.names()]
    busy = sum(sample.values["samples"] for sample in rows)
    assert busy > recording.stats["ticks"] * 0.5, (
        f"{busy} samples of the busy thread in {recording.stats['ticks']} ticks"
    )
    assert "stuck" in recording.profile.functions()


def test_the_sampler_ends_with_its_supervisor() -> None:
    """No tracer is left behind by remoteprof's own processes when their parent goes away (PDEATHSIG)."""
    with started(program("idle.py")) as target:
        recorder = cli.begin("attach", target.pid, "-r", 100, "-d", "1h", "-q", "-o", "/dev/null")
        sampling(recorder, wakeups=20)
        children = processes(recorder.pid)[1:]
        assert children, "the sampler is not a process of its own"
        recorder.kill()
        recorder.communicate(timeout=60)
        wait_until(lambda: all_gone(children), "the end of the sampler")
        assert free(target.pid)
