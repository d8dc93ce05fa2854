"""`heap`, `allocs`, `block`, `mutex`: what Go's own runtime/pprof and godeltaprof write, written from outside."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest
from support import pprof
from support.cli import LONG, begin, remoteprof
from support.gobuild import INSTALLED, PIE, STRIPPED, VERSIONS, build, lumps_instantiations, version_of
from support.goprofiles import differences, locations, not_between, ready, samples, told
from support.gotool import go_pprof
from support.targets import program, started, wait_until

from remoteprof.errors import RemoteprofError
from remoteprof.golang.buckets import KINDS, Reader, Reading

HEAP = [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")]
EVENTS = [("contentions", "count"), ("delay", "nanoseconds")]
BUILDS = [(version, (), False) for version in VERSIONS] + [
    (INSTALLED, STRIPPED, False),
    ("1.18.10", STRIPPED, False),
    (INSTALLED, (*PIE, *STRIPPED), False),
    (INSTALLED, PIE, True),
]
INTERVALS = 5


@pytest.mark.parametrize(("version", "flags", "cgo"), BUILDS)
def test_it_is_what_the_program_writes_itself(version: str, flags: tuple[str, ...], cgo: bool, tmp_path: Path) -> None:
    old = lumps_instantiations(version)
    with ready(build("gobuckets", version, *flags, cgo=cgo), tmp_path) as running:
        told(running, "own-")
        for kind in KINDS:
            done = remoteprof(kind, running.pid, "-o", tmp_path / f"{kind}.pb.gz")
            assert done.status == 0 and "note:" not in done.stderr, done.stderr
            told(running, "later-")
            ours, own, later = (pprof.load(tmp_path / f"{start}{kind}.pb.gz") for start in ("", "own-", "later-"))
            assert ours.types == own.types == (HEAP if KINDS[kind].is_heap else EVENTS)
            assert (ours.period, ours.period_type) == (own.period, own.period_type)
            assert ours.default_type == {"heap": "inuse_space", "allocs": "alloc_space"}.get(kind, "")
            assert own.default_type in ("", ours.default_type)
            found, expected, after = (samples(one, old=old) for one in (ours, own, later))
            moved = [key for key in {**expected, **after} if expected[key] != after[key]]
            # The program stands still, but for the runtime's own locks, which may be contended at any time.
            assert not moved or (
                kind == "mutex" and all(frames[-1][0].startswith("runtime.") for frames, _, _ in moved)
            )
            wrong = not_between(expected, found, after)
            assert not wrong, f"{kind}: {wrong}"
            assert len(found) >= (100 if KINDS[kind].is_heap else 4)
            assert locations(own) <= locations(ours) <= locations(later)
            assert [(one.memory_start, one.memory_limit, one.file_offset) for one in ours.message.mapping][:1] == [
                (one.memory_start, one.memory_limit, one.file_offset) for one in own.message.mapping
            ][:1]
            assert any(version_of(version) in comment for comment in ours.comments)
            if KINDS[kind].is_heap:
                assert all(sample.labels.keys() == {"bytes"} for sample in ours.samples)
    names = pprof.load(tmp_path / "heap.pb.gz").functions()
    assert {"innermost", "inner", "middle", "outer"} <= names


def test_go_tool_pprof_reads_them_as_its_own(tmp_path: Path) -> None:
    with ready(build("gobuckets"), tmp_path) as running:
        told(running, "own-")
        for kind, shown_types in (("heap", ("alloc_space", "inuse_space")), ("block", ("delay",))):
            ours, own, again = (tmp_path / f"{start}{kind}.pb.gz" for start in ("", "own-", "again-"))
            for path in (ours, again):
                done = remoteprof(kind, running.pid, "-q", "-o", path)
                assert (done.status, done.stderr) == (0, "")
            for shown in shown_types:
                texts = [go_pprof("-top", "-nodecount=50", f"-sample_index={shown}", path) for path in (ours, own)]
                tables = [text[text.index("flat  flat%") :] for text in texts]
                assert tables[0] == tables[1] and "main." in tables[0]
            # Nothing differs, neither from its own nor from ours.
            for base in (own, again):
                assert "Showing nodes accounting for 0, 0%" in go_pprof("-top", f"-diff_base={base}", ours)
        raw = [go_pprof("-raw", "-symbolize=none", tmp_path / f"{start}heap.pb.gz") for start in ("", "own-")]
        functions = [set(re.findall(r" (main\.\S+) /", text)) for text in raw]
        # What allocates only while it writes has no values yet; Go writes such stacks too.
        assert functions[0] == functions[1] - {"main.write"} and "main.generic[go.shape.int]" in functions[0]


def test_type_arguments_are_shown_or_not(tmp_path: Path) -> None:
    with ready(build("gobuckets"), tmp_path) as running:
        for generics in ("full", "short"):
            path = tmp_path / f"{generics}.pb.gz"
            assert remoteprof("allocs", running.pid, "--generics", generics, "-o", path).status == 0
    full, short = (pprof.load(tmp_path / f"{name}.pb.gz") for name in ("full", "short"))
    functions = []
    for one in (full, short):
        strings = [text.decode() for text in one.message.string_table]
        functions.append({(strings[it.name], strings[it.system_name]) for it in one.message.function})
    generic = sorted(function for function in functions[0] if function[0].startswith("main.generic["))
    assert len(generic) == 3 and all(name == system_name for name, system_name in generic)
    # Shown alike, they stay three.
    assert {("main.generic[...]", system_name) for _, system_name in generic} < functions[1]
    assert full.total("alloc_space") == short.total("alloc_space") > 0


@pytest.mark.parametrize("version", VERSIONS if LONG else ["1.18.10", INSTALLED])
def test_a_busy_program_is_between_what_it_writes_before_and_after(version: str, tmp_path: Path) -> None:
    old = lumps_instantiations(version)
    with ready(build("gobuckets", version), tmp_path, "busy") as running:
        for kind in KINDS:
            told(running, "before-")
            done = remoteprof(kind, running.pid, "-o", tmp_path / "ours.pb.gz")
            assert done.status == 0, done.stderr
            told(running, "after-")
            before, ours, after = (
                samples(pprof.load(tmp_path / name), old=old)
                for name in (f"before-{kind}.pb.gz", "ours.pb.gz", f"after-{kind}.pb.gz")
            )
            # What is in use goes up and down; all else only grows.
            growing = [key for key in {**before, **ours, **after} if not key[2].startswith("inuse")]
            wrong = not_between(before, ours, after, growing)
            assert not wrong, wrong
            assert sum(after[key] for key in growing) > sum(before[key] for key in growing)


def test_what_is_added_in_a_time_is_what_godeltaprof_writes(tmp_path: Path) -> None:
    with ready(build("godelta"), tmp_path) as running:
        told(running, "0")
        for interval in range(1, INTERVALS + 1):
            ours_path = tmp_path / f"ours-{interval}.pb.gz"
            waiting = begin("heap", running.pid, "--delta", "10m", "-o", ours_path)
            assert waiting.stderr is not None
            assert waiting.stderr.readline() == "waiting for 600 s; Ctrl-C ends it\n"
            told(running, str(interval))
            waiting.send_signal(signal.SIGINT)
            _, text = waiting.communicate(timeout=60)
            assert waiting.returncode == 0, text
            ours, theirs = (pprof.load(path) for path in (ours_path, tmp_path / f"{interval}.pb.gz"))
            found, expected = samples(ours), samples(theirs)
            assert found == expected, differences(found, expected)
            assert ours.types == theirs.types and ours.period == theirs.period == 2048
            assert 0 < ours.duration_ns < 600e9
            always = ours.with_function("always", "alloc_objects")
            # Of 500 more each time; nearly half of them are sampled.
            assert 400 * interval < always < 600 * interval
            assert (ours.with_function("sometimes", "alloc_objects") > 0) == (interval % 2 == 0)
        assert "main.generic[go.shape.float64]" in {
            frame.qualified for sample in pprof.load(tmp_path / "ours-3.pb.gz").samples for frame in sample.frames
        }


def test_one_reader_gives_one_interval_after_another(tmp_path: Path) -> None:
    """Mappings and build ids are read once; block and mutex profiles have intervals too."""
    with ready(build("gobuckets"), tmp_path, "busy") as running:
        for kind in ("block", "mutex"):
            with Reader(running.pid, kind) as reader:
                readings: list[Reading] = []

                def something_is_new(reader: Reader = reader, readings: list[Reading] = readings) -> bool:
                    told(running, "x-")
                    now = reader.read(delta=True)
                    if readings and now.counted == readings[-1].counted:
                        return False
                    readings.append(now)
                    return True

                for _ in range(3):
                    wait_until(something_is_new, f"a goroutine's wait for a {kind}")
                first, second, third = readings
                whole = reader.profile(third, first, command="test")
                parts = [
                    reader.profile(second, first, command="test"),
                    reader.profile(third, second, command="test"),
                ]
                for column in ("contentions", "delay"):
                    total = sum(part.total(column) for part in parts)
                    assert total == whole.total(column) > 0
                    everything = reader.profile(third, command="test").total(column)
                    assert everything == whole.total(column) + reader.profile(first, command="test").total(column)
                assert whole.mappings[0].build_id and whole.mappings[0].has_functions
                assert whole.duration_ns == third.time_ns - first.time_ns


@pytest.mark.parametrize("version", ["1.18.10", "1.22.12", INSTALLED])
def test_it_says_where_heap_profiling_is_not_linked_in(version: str, tmp_path: Path) -> None:
    with ready(build("goplain", version, *STRIPPED)) as running:
        for kind in ("heap", "allocs"):
            output = tmp_path / "x.pb.gz"
            done = remoteprof(kind, running.pid, "-o", output)
            done.failed_with(5, "heap profiling is not linked into process", "net/http/pprof")
            assert not output.exists()
        remoteprof("block", running.pid, "-o", output).failed_with(5, "rate is 0", "runtime.SetBlockProfileRate")
        remoteprof("mutex", running.pid, "-o", output).failed_with(5, "rate is 0", "runtime.SetMutexProfileFraction")
        assert not output.exists()


@pytest.mark.parametrize("version", ["1.18.10", INSTALLED])
def test_it_says_where_nothing_is_sampled(version: str, tmp_path: Path) -> None:
    output = tmp_path / "x.pb.gz"
    with ready(build("gobuckets", version), tmp_path, GODEBUG="memprofilerate=0") as running:
        for arguments in ((), ("--delta", "100ms")):
            if version == INSTALLED:
                # Go 1.18 does not heed this setting.
                remoteprof("heap", running.pid, "-o", output, *arguments).failed_with(5, "MemProfileRate is 0")
            remoteprof("block", running.pid, "-o", output, *arguments).failed_with(5, "rate is 0")
            remoteprof("mutex", running.pid, "-o", output, *arguments).failed_with(5, "rate is 0")
    with ready(build("gobuckets", version), tmp_path) as running:
        done = remoteprof("block", running.pid, "-o", output, "--delta", "100ms")
        done.failed_with(5, "no goroutine has been blocked")
        assert re.search(r"in these \d+\.\d s\b", done.stderr), done.stderr
    assert not output.exists()


def test_a_profile_has_a_name_of_its_own_and_any_format(tmp_path: Path) -> None:
    with ready(build("gobuckets"), tmp_path) as running:
        done = remoteprof("heap", running.pid, cwd=tmp_path)
        name = Path(f"/proc/{running.pid}/comm").read_text(encoding="utf-8").strip()
        assert done.status == 0 and (tmp_path / f"{name}-{running.pid}-heap.pb.gz").exists()
        assert "heaviest by inuse_space" in done.stderr and "go tool pprof" in done.stderr
        folded = remoteprof("allocs", running.pid, "-o", "-", "-f", "folded", "-q")
        assert folded.status == 0 and "main.allocate;main.outer" in folded.stdout


def test_an_exec_in_between_is_seen(tmp_path: Path) -> None:
    with ready(build("gobuckets"), tmp_path) as running, Reader(running.pid, "heap") as reader:
        before = reader.read()
        running.send("exec\n")
        assert running.line() == "ready"
        with pytest.raises(RemoteprofError, match="has started another program meanwhile"):
            reader.profile(reader.read(), before, command="test")


def test_it_says_what_is_no_go_program(tmp_path: Path) -> None:
    with started(program("idle.py")) as running:
        remoteprof("heap", running.pid).failed_with(5, "is not a Go program")
    remoteprof("mutex", 0x7FFFFFFE).failed_with(3, "no process")
    remoteprof("block", 1, "--delta", "soon").failed_with(2, "not a duration")
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
        remoteprof("allocs", gone.pid).failed_with(3, "no process")
