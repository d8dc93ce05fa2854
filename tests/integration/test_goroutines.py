"""`goroutines`: what a Go program's own runtime/pprof says of it, said from outside."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import pprof
from support.cli import remoteprof
from support.gobuild import PIE, RACE, STRIPPED, VERSIONS, blocks, build, legible, lumps_instantiations, version_of
from support.gotool import go_pprof
from support.targets import Running, program, started, wait_until

BUILDS = [(version, (), False) for version in VERSIONS] + [
    ("local", STRIPPED, False),
    ("local", PIE, False),
    ("local", (*PIE, *STRIPPED), False),
    ("local", (), True),
    ("local", PIE, True),
    ("local", RACE, True),
]


@contextlib.contextmanager
def writing(folder: Path, binary: Path, *arguments: object) -> Iterator[Running]:
    """The program, once it has written its own profiles to the folder and waits for a line."""
    with started([str(binary), str(folder), *map(str, arguments)]) as running:
        main_waits(running.pid)
        yield running


def main_waits(pid: int) -> None:
    """Until its main goroutine is in the read of its next line."""

    def waits() -> bool:
        calls = [path.read_text(encoding="utf-8") for path in Path(f"/proc/{pid}/task").glob("*/syscall")]
        return any(call.startswith("0 0x0 ") for call in calls)

    wait_until(waits, "a thread that reads standard input")


def without_main(text: str) -> list[str]:
    """The groups of a text, but that of the main goroutine: while it writes, it is elsewhere."""
    return sorted(part for part in blocks(text) if "main.main+" not in part and "goroutine 1 [" not in part)


def stacks(profile: pprof.Profile) -> Counter[Any]:
    """Every stack but the main goroutine's, with its labels: functions, files, lines and first lines."""
    found: Counter[Any] = Counter()
    for sample in profile.samples:
        frames = tuple((frame.qualified, frame.file, frame.line, frame.start_line) for frame in sample.frames)
        if frames[0][0] != "runtime.main":
            found[frames, tuple(sorted(sample.labels.items()))] += sample.values["goroutine"]
    return found


@pytest.mark.parametrize(("version", "flags", "cgo"), BUILDS)
def test_it_is_what_the_program_says_itself(version: str, flags: tuple[str, ...], cgo: bool, tmp_path: Path) -> None:
    binary = build("goroutines", version, *flags, cgo=cgo)
    with writing(tmp_path, binary, 30) as running:
        for debug in (1, 2):
            ours = remoteprof("goroutines", running.pid, "--debug", debug)
            assert (ours.status, ours.stderr) == (0, "")
            own = (tmp_path / f"own.{debug}").read_text(encoding="utf-8")
            head = [text.split("\n", 1)[0] for text in (ours.stdout, own)]
            assert debug == 2 or head[0] == head[1] == "goroutine profile: total 48"
            theirs = without_main(legible(own.removeprefix(f"{head[1]}\n") if debug == 1 else own))
            found = without_main(ours.stdout.removeprefix(f"{head[0]}\n") if debug == 1 else ours.stdout)
            assert found == theirs
            assert len(found) == (18 if debug == 1 else 47)
        assert remoteprof("goroutines", running.pid, "-o", tmp_path / "ours.pb.gz").status == 0
    profile, own_profile = (pprof.load(tmp_path / f"{name}.pb.gz") for name in ("ours", "own"))
    assert profile.types == own_profile.types == [("goroutine", "count")]
    assert (profile.period, profile.period_type, profile.default_type) == (1, ("goroutine", "count"), "goroutine")
    counted, own_counted = stacks(profile), stacks(own_profile)
    lumped = lumps_instantiations(version)
    if lumped:
        # Nor does Go 1.18 know where functions begin.
        assert _plain(counted) == _plain(own_counted)
    else:
        assert counted == own_counted
    assert any(("kind", "labelled") in labels and ("worker", "7") in labels for _, labels in counted)
    assert any(version_of(version) in comment for comment in profile.comments)
    raw = go_pprof("-raw", "-symbolize=none", tmp_path / "ours.pb.gz")
    assert "main.generic" in raw and "main.gate.Wait" in raw
    functions = [
        set(re.findall(r" (main\.\S+) /", go_pprof("-raw", "-symbolize=none", tmp_path / f"{name}.pb.gz")))
        for name in ("ours", "own")
    ]
    if lumped:
        functions = [{re.sub(r"\[.*\]", "[...]", name) for name in names} for names in functions]
    assert functions[0] == functions[1] - {"main.write"}


def _plain(found: Counter[Any]) -> Counter[Any]:
    plain: Counter[Any] = Counter()
    for (frames, labels), count in found.items():
        names = tuple((re.sub(r"\[.*\]", "[...]", name), file, line) for name, file, line, _ in frames)
        plain[names, labels] += count
    return plain


@pytest.mark.parametrize(("flags", "cgo"), [((), False), (PIE, False), ((), True), (PIE, True)])
def test_running_goroutines_are_caught(flags: tuple[str, ...], cgo: bool, tmp_path: Path) -> None:
    with writing(tmp_path, build("goroutines", "local", *flags, cgo=cgo), 0, 2) as running:
        for _ in range(3):
            ours = remoteprof("goroutines", running.pid, "--debug", 2)
            spinning = [part for part in blocks(ours.stdout) if "main.spin(...)" in part]
            assert len(spinning) == 2, ours.stdout
            # Without a core it is runnable, and read without a stop.
            assert all(
                re.match(r"goroutine \d+ \[(running|runnable|preempted)\]:\nmain.spin", part) for part in spinning
            )
            assert "[unreadable" not in ours.stdout and "[truncated]" not in ours.stdout


def test_a_go_library_in_a_python(tmp_path: Path) -> None:
    """Built as c-shared: its goroutines, one of which a thread of C waits in."""
    library = build("goshared", "local", "-buildmode=c-shared", *STRIPPED, cgo=True)
    parked: list[str] = []
    with started(program("go_host.py", library)) as running:

        def all_parked() -> bool:
            ours = remoteprof("goroutines", running.pid, "--debug", 2)
            assert (ours.status, ours.stderr) == (0, "")
            parked[:] = [part for part in blocks(ours.stdout) if "main.park(...)" in part]
            return len(parked) == 6 and all("[chan receive]:\n" in part for part in parked)

        wait_until(all_parked, "five goroutines and a thread of C that wait")
    called = [part for part in parked if "main.Block(...)" in part]
    assert len(called) == 1 and "created by" not in called[0] and "[truncated]" not in called[0]


def test_many_are_read(tmp_path: Path) -> None:
    with writing(tmp_path, build("goroutines"), 100_000) as running:
        done = remoteprof("goroutines", running.pid, "-o", tmp_path / "ours.pb.gz")
        assert done.status == 0 and "100018 goroutines" in done.stderr
    profile = pprof.load(tmp_path / "ours.pb.gz")
    assert profile.total("goroutine") == 100_018
    assert max(sample.values["goroutine"] for sample in profile.samples) == 100_000


def test_goroutines_of_the_runtime_only_when_asked_for(tmp_path: Path) -> None:
    with writing(tmp_path, build("goroutines")) as running:
        plain, system = (remoteprof("goroutines", running.pid, *more).stdout for more in ((), ("--system",)))
        assert "runtime.forcegchelper" not in plain
        assert "runtime.forcegchelper" in system and "runtime.bgsweep" in system
        assert "total 18" in plain


def test_dump_and_modules_of_a_go_program(tmp_path: Path) -> None:
    with writing(tmp_path, build("goroutines", "local", "-trimpath", "-ldflags=-B none")) as running:
        text = remoteprof("dump", running.pid)
        assert text.status == 0 and "main.main.func17(...)" in text.stdout and "[chan receive" in text.stdout
        told = json.loads(remoteprof("dump", running.pid, "--json").stdout)
        main = next(one for one in told if one.get("goroutine") == 1)
        assert main["state"] == "syscall" and main["frames"][-1]["function"] == "runtime.main"
        assert any("thread_id" in one for one in told)
        modules = remoteprof("modules", running.pid)
        assert f"{version_of('local')}; package example.com/goroutines; module example.com/goroutines" in modules.stdout
        go = json.loads(remoteprof("modules", running.pid, "--json").stdout)[0]
    assert go["go"]["settings"]["-trimpath"] == "true" and go["go"]["settings"]["CGO_ENABLED"] == "0"
    told_id = subprocess.run(
        ["go", "tool", "buildid", go["path"]], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert go["build_id"] == told_id and "/" in told_id


def test_it_says_what_is_no_go_program() -> None:
    with started(program("idle.py")) as running:
        remoteprof("goroutines", running.pid).failed_with(5, "is not a Go program")


def test_options_that_do_not_fit() -> None:
    remoteprof("goroutines", 1, "-f", "folded").failed_with(2, "-o PATH")
    remoteprof("goroutines", 1, "-o", "-", "--debug", 2).failed_with(2, "--debug")
    remoteprof("goroutines", 0x7FFFFFFE).failed_with(3, "no process")
