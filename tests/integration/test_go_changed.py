"""Go programs that were changed after or while they were built: packed, garbled."""

from __future__ import annotations

from pathlib import Path

from support import cli, stats
from support.gobuild import build, garbled
from support.targets import Running, compiled, started

REFUSED = ("goroutines", "heap", "allocs", "block", "mutex")


def refuses(running: Running) -> None:
    """What only Go has is refused, with the reason; `dump` shows threads."""
    for command in REFUSED:
        options = () if command == "goroutines" else ("-o", "/dev/null")
        done = cli.remoteprof(command, running.pid, *options)
        done.failed_with(5, "is not a Go program, or one that was packed or changed after it was built")
    dump = cli.remoteprof("dump", running.pid)
    assert dump.status == 0 and "goroutine " not in dump.stdout, dump.stderr


def no_wrong_stack(recording: cli.Recording) -> None:
    """Nothing is named, and what is not known is not said."""
    assert stats.faults(recording.stats, recording.profile) == []
    names = {frame.qualified for sample in recording.profile.samples for frame in sample.frames}
    assert not any(name.startswith(("main.", "runtime.", "time.")) for name in names), names


def test_a_packed_program(tmp_path: Path) -> None:
    with started([compiled("packed.c"), build("gocpu"), "split"]) as running:
        refuses(running)
        no_wrong_stack(cli.attach(running.pid, tmp_path, 1, 100))
        assert int(running.finish()) > 0


def test_a_garbled_program(tmp_path: Path) -> None:
    with started([garbled("gocpu"), "split"]) as running:
        refuses(running)
        no_wrong_stack(cli.attach(running.pid, tmp_path, 1, 100))
        assert int(running.finish()) > 0
