"""The library, over a native module that makes its samples up."""

import signal
import subprocess
import threading
from pathlib import Path

import pytest

import remoteprof
from remoteprof import ProcessNotFound, SamplerDied, UsageError
from remoteprof.sampler import Sampler


def descriptors_now():
    return sorted(one.name for one in Path("/proc/self/fd").iterdir())


def test_record_gives_a_profile_and_leaves_nothing(native, target, capfd):
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    descriptors = descriptors_now()
    profile = remoteprof.record(target.pid, duration=0.1, rate=50)
    assert profile.period == 20_000_000
    assert profile.stats["samples"] == 350
    assert profile.stats["profiler_cpu_ns"] > 0 and profile.stats["profiler_peak_rss_bytes"] > 0
    assert f"command: remoteprof.record(pid={target.pid}, duration=0.1, rate=50)" in profile.comments
    assert handlers == [signal.getsignal(number) for number in signal.valid_signals()]
    assert descriptors == descriptors_now()
    assert threading.active_count() == 1
    assert capfd.readouterr() == ("", "")
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    assert children == [str(target.pid)]


def test_record_in_a_thread(native, target):
    results = []
    thread = threading.Thread(target=lambda: results.append(remoteprof.record(target.pid, duration=0.1)))
    thread.start()
    thread.join()
    assert results[0].total("samples") == 350


def test_other_children_keep_their_statuses(native, target):
    children = [subprocess.Popen(["sh", "-c", f"exit {code}"]) for code in range(5)]
    remoteprof.record(target.pid, duration=0.1)
    assert [child.wait() for child in children] == list(range(5))


def test_a_host_that_ignores_its_children(native, target):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert remoteprof.record(target.pid, duration=0.1).stats["samples"] == 350
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_errors(native, monkeypatch, target):
    with pytest.raises(ProcessNotFound) as caught:
        remoteprof.record(999999)
    assert caught.value.hint
    for bad in ({"duration": 0}, {"duration": -1}, {"rate": 0}, {"rate": float("nan")}, {"max_pause": 0}):
        with pytest.raises(UsageError):
            remoteprof.record(target.pid, **bad)
    monkeypatch.setenv("FAKE", "dies")
    with pytest.raises(SamplerDied, match="SIGKILL"):
        remoteprof.record(target.pid)


def test_dump(native, target):
    assert [stack.name for stack in remoteprof.dump(target.pid)] == ["MainThread", "worker"]


def test_an_interrupt_in_the_host_ends_the_sampler(native, target, monkeypatch):
    samplers = []
    monkeypatch.setattr(native.Link, "receive", lambda self, timeout: signal.default_int_handler(signal.SIGINT, None))
    monkeypatch.setattr("remoteprof.session.Sampler", lambda **given: samplers.append(Sampler(**given)) or samplers[0])
    with pytest.raises(KeyboardInterrupt):
        remoteprof.record(target.pid)
    assert not Path(f"/proc/{samplers[0].pid}").exists()


def test_public_names_are_there():
    for name in remoteprof.__all__:
        assert getattr(remoteprof, name)
    with pytest.raises(AttributeError):
        remoteprof.nothing  # noqa: B018
