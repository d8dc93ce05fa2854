"""Go programs in `attach`: whole stacks by Go's own tables, through C and back, with Go's names and labels."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from support import bounds, cli, golegal, pprof, stats
from support.builds import run
from support.gobuild import PIE, RACE, STRIPPED, VERSIONS, build, version_of
from support.gotool import go, go_pprof
from support.targets import program, started, wait_until

SECONDS = 10 if cli.LONG else 2
RATE = 1000
BUILDS = [(version, ()) for version in VERSIONS] + [("local", (*PIE, *STRIPPED)), ("local", PIE), ("local", RACE)]
EDGES = [version for version in VERSIONS if version.startswith(("1.18.10", "1.21.13", "local"))]


def record(
    folder: Path, version: str, mode: str, *flags: str, module: str = "gocpu", seconds: float = SECONDS
) -> cli.Recording:
    """A recording of MODE of the module, of which nothing is lost."""
    binary = build(module, version, *flags, cgo=module == "gocgo" or flags == RACE)
    with started([binary, mode]) as target:
        recording = cli.attach(target.pid, folder, seconds, RATE)
        assert int(target.finish() or 0) >= 0
    whole(recording)
    return recording


def whole(recording: cli.Recording) -> None:
    """Its figures fit, and at least 999 stacks of 1000 are complete."""
    numbers = recording.stats
    assert stats.faults(numbers, recording.profile) == []
    unread = [sample.names() for sample in recording.profile.samples if sample.frames[-1].name.startswith("[unread")]
    assert numbers["unreadable"] == 0, unread
    assert numbers["complete"] >= 0.999 * numbers["samples"], numbers["cut"]
    assert "not understood" not in recording.result.stderr


def stacks(profile: pprof.Profile) -> Counter[tuple[str, ...]]:
    """Samples by stack, root first."""
    found: Counter[tuple[str, ...]] = Counter()
    for sample in profile.samples:
        found[tuple(frame.qualified for frame in sample.frames)] += sample.values["samples"]
    return found


@pytest.mark.parametrize(("version", "flags"), BUILDS)
def test_a_known_split(version: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    recording = record(tmp_path, version, "split", *flags)
    truth = {"tenth": 0.1, "threeTenths": 0.3, "sixTenths": 0.6}
    own = Counter[str]()
    total = 0
    for sample in recording.profile.samples:
        names = [frame.qualified for frame in sample.frames]
        if "main.split" in names:
            total += sample.values["cpu"]
            own.update({name: sample.values["cpu"] for name in truth if f"main.{name}" in names})
            assert names[0] == "main.split", names
    samples = bounds.effective_samples(recording.profile, "cpu", recording.stats["samples"])
    for name, share in truth.items():
        allowed = bounds.allowed_error(share, min(samples, SECONDS * RATE), len(truth) * len(BUILDS)) + 0.01
        assert abs(own[name] / total - share) <= allowed, (name, own, total)
    # Inlined calls have their lines, in a stripped program too. A loop of few instructions may be seen at some of them.
    inlined = ["main.burn", "main.work", "main.mix"]
    leaves = [sample for sample in recording.profile.samples if sample.frames[-1].qualified in inlined[1:]]
    assert leaves
    for leaf in leaves:
        depth = inlined.index(leaf.frames[-1].qualified) + 1
        assert [frame.qualified for frame in leaf.frames[-depth:]] == inlined[:depth]
        assert all(frame.file.endswith("main.go") and frame.line for frame in leaf.frames)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ("allocate", "churn"))
def test_the_runtime_s_own_stacks_are_whole(version: str, mode: str, tmp_path: Path) -> None:
    recording = record(tmp_path, version, mode)
    found = stacks(recording.profile)
    roots = {stack[0] for stack in found}
    assert roots <= {
        *(
            "main.allocate",
            "main.churn",
            "main.churn.func1",
            "main.churn.func1.1",
            "runtime.main",
            "[unsampled]",
            "[empty]",
            "[truncated]",
        ),
        *(name for name in roots if re.match(r"runtime\.(\w+|\(\*\w+\)\.\w+)(\.abi0)?$", name)),
    }
    assert any(name.startswith("runtime.mallocgc") for stack in found for name in stack) or mode == "churn"
    # From the system stack back to the goroutine.
    assert any("runtime.systemstack" in stack and stack[0].startswith("main.") for stack in found)


@pytest.mark.parametrize(("version", "flags"), [(version, ()) for version in VERSIONS] + [("local", STRIPPED)])
def test_every_step_is_legal(version: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    legal = golegal.generate(tmp_path / "legal")
    binary = tmp_path / "program"
    toolchain = "local" if version == "local" else f"go{version}"
    run(go(), "build", *flags, "-o", binary, ".", cwd=tmp_path / "legal", GOTOOLCHAIN=toolchain, CGO_ENABLED="0")
    with started([binary]) as target:
        recording = cli.attach(target.pid, tmp_path, SECONDS, RATE)
    whole(recording)
    verdict = golegal.judge(legal, recording.profile)
    assert not verdict.illegal, verdict.illegal.most_common(5)
    assert verdict.legal > RATE * SECONDS / 4
    assert len(verdict.functions) > 150 and len(verdict.tops) > 20


@pytest.mark.parametrize("version", EDGES)
@pytest.mark.parametrize("flags", ((), PIE, STRIPPED), ids=("static", "pie", "stripped"))
def test_a_loop_over_time_now(version: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    recording = record(tmp_path, version, "time", *flags)
    found = stacks(recording.profile)
    for stack in found:
        assert not re.match(r"time\.|runtime\.(nanotime|walltime)|.*vdso|_VDSO|clock_gettime", stack[0]), stack
        assert stack[0] == "main.timeLoop" or not any(name.startswith("time.") for name in stack), stack
    in_vdso = [stack for stack in found if "clock_gettime" in stack[-1]]
    assert sum(found[stack] for stack in in_vdso) > 100, found.most_common(5)
    # One that was read while its way out of the vDSO was not there goes on where the runtime says: at the caller.
    direct = [stack for stack in in_vdso if re.match(r"runtime\.(nanotime1|walltime)|time\.now", stack[-2])]
    others = set(in_vdso) - set(direct)
    # By readings: one of a thread that waited for its core stands for many ticks.
    rows = [sample for sample in recording.profile.samples if tuple(one.qualified for one in sample.frames) in others]
    assert len(rows) <= 0.001 * recording.stats["samples"], others
    assert all(re.match(r"runtime\.(nanotime|walltime)$|time\.now$", stack[-2]) for stack in others), others
    top = go_pprof("-top", "-sample_index=samples", recording.path)
    assert "ExternalCode" not in top and "main.timeLoop" in top


@pytest.mark.parametrize("version", EDGES)
def test_a_tenth_of_a_second_of_time(version: str, tmp_path: Path) -> None:
    """The test that Go has for its own profiler (TimeProf in runtime/crash_unix_test.go), from outside."""
    with started([build("gocpu", version), "time"]) as target:
        recording = cli.attach(target.pid, tmp_path, 0.1, 100)
    assert "ExternalCode" not in go_pprof("-top", "-nodecount=1", recording.path)
    for sample in recording.profile.samples:
        names = [frame.qualified for frame in sample.frames]
        if any(name.startswith("time.") for name in names):
            assert names[0] == "main.timeLoop", names


@pytest.mark.parametrize("version", VERSIONS)
def test_labels(version: str, tmp_path: Path) -> None:
    recording = record(tmp_path, version, "labelled")
    cpu: Counter[str] = Counter()
    for sample in recording.profile.samples:
        names = [frame.qualified for frame in sample.frames]
        kind = sample.labels.get("kind", "")
        if "main.labelled" not in names:
            # The scheduler is about to run it: as in Go's own profiles, that is already for it.
            assert not kind or names[0].startswith("runtime."), names
            continue
        cpu[str(kind)] += sample.values["cpu"]
        assert (sample.labels.get("user") == "é <b>") == (kind == "small")
        assert kind or "main.labelled.func1" not in names
    total = sum(cpu.values())
    for kind, share in (("small", 0.2), ("large", 0.7), ("", 0.1)):
        allowed = bounds.allowed_error(share, SECONDS * RATE / 2, 3 * len(VERSIONS)) + 0.02
        assert abs(cpu[kind] / total - share) <= allowed, cpu


@pytest.mark.parametrize("version", EDGES)
@pytest.mark.parametrize("flags", ((), STRIPPED), ids=("plain", "stripped"))
def test_through_c_and_back(version: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    recording = record(tmp_path, version, "there", *flags, module="gocgo")
    there = [stack for stack in stacks(recording.profile) if any("there" in name for name in stack)]
    assert there and all(stack[0] == "main.forever" for stack in there)
    if not flags:
        assert any(stack[-1] == "c_work" and "c_burn" in stack and "runtime.cgocall" in stack for stack in there)
    recording = record(tmp_path, version, "back", *flags, module="gocgo")
    found = stacks(recording.profile)
    deepest = max(found, key=len)
    order = [
        "main.forever",
        "main.andBack",
        "runtime.cgocall",
        "main.goInner",
        "main.inner",
        "main.goLast",
        "main.last",
    ]
    if not flags:
        order[3:3] = ["c_outer"]
        order[6:6] = ["c_second"]
        order += ["c_burn", "c_work"]
        deepest = max((stack for stack in found if stack[-1] == "c_work"), key=found.__getitem__)
    rest = iter(deepest)
    assert all(any(name == wanted for name in rest) for wanted in order), deepest
    assert deepest[0] == "main.forever"
    for stack in found:
        if "main.last" in stack:
            assert stack[0] == "main.forever" and "main.inner" in stack, stack


def test_asleep_in_c(tmp_path: Path) -> None:
    recording = record(tmp_path, "local", "asleep", module="gocgo")
    found = stacks(recording.profile)
    asleep = [stack for stack in found if "c_sleep" in stack]
    assert asleep and all(stack[0] == "main.forever" and "main.asleep" in stack for stack in asleep)


@pytest.mark.parametrize("version", ("local", "1.18.10"))
def test_a_library_in_python(version: str, tmp_path: Path) -> None:
    library = build("gocgo", version, "-buildmode=c-shared", cgo=True)
    with started(program("gocgo_host.py", library)) as target:
        recording = cli.attach(target.pid, tmp_path, SECONDS, RATE)
    whole(recording)
    inside = [sample for sample in recording.profile.samples if "last" in sample.names()]
    assert inside
    for sample in inside:
        names = [frame.qualified for frame in sample.frames]
        order = iter(names)
        wanted = ("host", "call_go", "Enter", "main.Enter", "main.inner", "main.goLast", "main.last")
        assert all(any(name == one for name in order) for one in wanted), names
    unmatched = [sample for sample in recording.profile.samples if "[unmatched]" in sample.names()]
    assert len(unmatched) <= 0.001 * recording.stats["samples"], unmatched


def test_a_program_that_profiles_itself_goes_on(tmp_path: Path) -> None:
    with started([build("gocpu"), "itself"]) as target:
        recording = cli.attach(target.pid, tmp_path, SECONDS, RATE)
        rounds = int(target.finish())
    whole(recording)
    assert rounds > 0
    assert target.process.returncode == 0


def test_dump_and_modules_of_a_stripped_program() -> None:
    with started([build("gocpu", "local", *STRIPPED), "split"]) as target:
        text = cli.remoteprof("dump", target.pid)
    assert text.status == 0, text.stderr
    assert "main.burn" in text.stdout and re.search(r"main\.go:\d+", text.stdout), text.stdout
    assert "(0x" not in text.stdout


def test_run_finds_go_as_it_starts(tmp_path: Path) -> None:
    path = tmp_path / "run.pb.gz"
    command = [
        cli.COMMAND,
        "run",
        "-d",
        "2",
        "-r",
        "500",
        "-o",
        path,
        "--",
        build("gocpu", "local", *STRIPPED),
        "split",
    ]
    done = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(path.exists, "the profile")
    done.communicate("", timeout=60)
    found = stacks(pprof.load(path))
    # Before there are goroutines, its frames have no names.
    named = sum(count for stack, count in found.items() if "main.split" in stack)
    assert named > 300, found.most_common(5)


def test_the_version_is_said(tmp_path: Path) -> None:
    recording = record(tmp_path, "local", "split", seconds=0.5)
    version = version_of("local").removeprefix("go")
    assert any(f"Go {version}" in comment for comment in recording.profile.comments), recording.profile.comments
