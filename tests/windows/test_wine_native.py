"""Native stacks on Windows, as far as wine shows them: whole, and such as the program can have; and one order for those
of Python and C."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from support import builds, legal, native, stats, wine
from support.builds import Program
from support.cli import LONG, Recording
from support.pprof import Profile, Sample
from support.targets import TARGETS

RATE = 500
SECONDS = 4 if LONG else 1
WANTED = 2_000 if LONG else 100
"""Stacks of one program."""
ROUNDS = 20
FUNCTIONS = 200
LEVELS = ("-O0", "-O1", "-O2", "-O3", "-Os", "-Ofast", "-O2 -flto", "-O2 -fno-inline -ffunction-sections")
POINTERS = ("-fomit-frame-pointer", "-fno-omit-frame-pointer")
INFORMATION = ("-g", "-g0")
"""DWARF, or COFF symbols alone."""
VARIANTS = [" ".join(options) for options in product(LEVELS, POINTERS, INFORMATION)]
assert len(VARIANTS) == 32
QUICK = VARIANTS if LONG else [VARIANTS[index] for index in (0, 6, 9, 13, 16, 27)]
O2 = ("-O2", "-g")
FIRST = "RtlUserThreadStart"


def recorded(
    program: Program, directory: Path, *arguments: object, wanted: int = WANTED
) -> tuple[native.Verdict, Recording]:
    """Record the program until there are enough stacks, and judge them; the last recording too."""
    total = native.Verdict()
    samples = cut = 0
    with wine.program(program.path, *arguments) as target:
        for _ in range(ROUNDS):
            recording = wine.attach(wine.LATEST, target.pid, directory, SECONDS, RATE)
            verdict = native.judge(program.legal, recording.profile)
            assert verdict.illegal == 0, f"{verdict.illegal} of {verdict.samples}: {verdict.reasons.most_common(5)}"
            assert stats.faults(recording.stats, recording.profile) == []
            samples += recording.stats["samples"]
            cut += recording.stats["samples"] - recording.stats["complete"]
            total.functions |= verdict.functions
            total.depth = max(total.depth, verdict.depth)
            total.lines += verdict.lines
            total.legal += verdict.legal
            total.reasons.update(verdict.reasons)
            for entry, below in verdict.bottoms.items():
                total.bottoms.setdefault(entry, set()).update(below)
            if samples >= wanted:
                break
        assert target.running.process.poll() is None
    print(f"{samples} stacks, {cut} cut, depth {total.depth}, {len(total.functions)} functions", total.reasons)
    assert samples >= wanted, samples
    assert cut <= 0.01 * samples, (samples, cut, recording.stats["cut"], total.reasons)
    # However deep a stack, what is below the function that runs all the time is always the same.
    assert all(len(below) == 1 for below in total.bottoms.values()), total.bottoms
    assert {next(iter(below))[0] for below in total.bottoms.values()} == {FIRST}, total.bottoms
    return total, recording


@pytest.mark.parametrize("options", QUICK)
def test_stacks_of_known_callers(options: str, tmp_path: Path) -> None:
    verdict, recording = recorded(builds.build_windows(*options.split()), tmp_path, "chains")
    assert verdict.depth >= 80, "the deep stacks were not seen"
    assert len(verdict.functions) >= FUNCTIONS, "most functions were never seen"
    assert set(verdict.bottoms) == {f"entry{chain}" for chain in range(native.DEEP)}
    assert (verdict.lines > 0) == ("-g0" not in options)
    path = wine.path_of(builds.build_windows(*options.split()).path).lower()
    assert recording.profile.mappings[0].lower() == path


def test_exceptions_in_between(tmp_path: Path) -> None:
    """The dispatcher of exceptions stands between what ran and the handler that it calls."""
    verdict, _ = recorded(builds.build_windows(*O2), tmp_path, "exceptions")
    assert set(verdict.bottoms) == {"entry_raise"}
    assert {"on_profile", "run4"} <= verdict.functions


def test_a_library_that_comes_and_goes(tmp_path: Path) -> None:
    library = builds.windows_library("loaded.c", "-O2")
    # One that is met while it is being loaded is cut: enough stacks that a few of those are no hundredth.
    wanted = 5 * WANTED
    verdict, _ = recorded(builds.build_windows(*O2), tmp_path, "load", wine.path_of(library), wanted=wanted)
    assert set(verdict.bottoms) == {"entry_load"}
    assert {"on_call", "run6"} <= verdict.functions


@pytest.mark.parametrize("kib", (100, 400))
def test_deep_stacks(kib: int, tmp_path: Path) -> None:
    verdict, _ = recorded(builds.build_windows(*O2), tmp_path, "deep", kib)
    assert set(verdict.bottoms) == {"entry_deep"}
    assert verdict.depth >= kib


def test_a_stack_that_is_larger_than_what_is_copied(tmp_path: Path) -> None:
    program = builds.build_windows(*O2)
    with wine.program(program.path, "deep", 400) as target:
        recording = wine.attach(wine.LATEST, target.pid, tmp_path, 1, RATE, "--max-stack", "128KiB")
    assert recording.stats["samples"] > 0
    assert recording.stats["complete"] == 0
    assert recording.stats["cut"]["deeper than copied"] >= 0.9 * recording.stats["samples"]
    assert stats.faults(recording.stats, recording.profile) == []


def test_a_dump_of_a_native_program() -> None:
    program = builds.build_windows(*O2)
    with wine.program(program.path, "chains") as target:
        result = wine.remoteprof(wine.LATEST, "dump", target.pid)
    assert result.status == 0, result.stderr
    assert all(f"entry{chain}" in result.stdout for chain in range(native.DEEP)), result.stdout


MIXED = {
    "sort_key": ("sorts", "python"),
    "reduces": ("sort_key", "python"),
    "compared": ("quick", "msvcrt.dll"),
    "replaced": ("sub", "python"),
}
"""Function → its only Python caller, and the module that has the C functions in between."""


def between(profile: Profile, sample: Sample, name: str) -> tuple[str, set[str]] | None:
    """The Python function that called `name`, and the modules of the native frames in between; None where it is not."""
    modules: set[str] = set()
    found = False
    for frame in reversed(sample.frames):
        if frame.address:
            ranges = zip(profile.message.mapping, profile.mappings, strict=True)
            within = (path for of, path in ranges if of.memory_start <= frame.address < of.memory_limit)
            modules.add(next(within, "").rpartition("\\")[2].lower())
        elif found and not frame.name.startswith("["):
            return frame.name, modules
        elif frame.name == name:
            found, modules = True, set()
    return None


@pytest.mark.parametrize("version", wine.VERSIONS)
def test_python_and_c_in_one_order(version: str, tmp_path: Path) -> None:
    samples = unmatched = 0
    seen: dict[str, int] = dict.fromkeys(MIXED, 0)
    with wine.target(version, TARGETS / "windows_mixed.py") as target:
        for _ in range(ROUNDS):
            recording = wine.attach(version, target.pid, tmp_path, SECONDS, RATE)
            assert stats.faults(recording.stats, recording.profile) == []
            samples += recording.stats["samples"]
            unmatched += recording.stats["unmatched"]
            for sample in recording.profile.samples:
                for name, (caller, module) in MIXED.items():
                    place = between(recording.profile, sample, name)
                    if place is None or "[unmatched]" in sample.names():
                        continue
                    assert place[0] == caller, (name, sample.names())
                    assert any(other.startswith(module) for other in place[1]), (name, sample.names())
                    seen[name] += 1
            if samples >= WANTED and all(seen.values()):
                break
    print(version, samples, unmatched, seen, recording.stats["cut"])
    assert samples >= WANTED and all(seen.values()), (samples, seen)
    assert unmatched <= 0.005 * samples, (unmatched, samples)


def test_native_frames_can_be_left_out(tmp_path: Path) -> None:
    with wine.target(wine.LATEST, TARGETS / "windows_mixed.py") as target:
        recording = wine.attach(wine.LATEST, target.pid, tmp_path, 1, RATE, "--no-native")
    assert recording.stats["samples"] > 0
    assert not any(frame.address for sample in recording.profile.samples for frame in sample.frames)


def test_python_frames_are_the_same_with_native_ones(tmp_path: Path) -> None:
    """Legal callers, over stacks of both kinds."""
    version = "3.12"
    table = legal.generate(tmp_path / "generated.py", seed=312)
    with wine.target(version, table.path) as target:
        recording = wine.attach(version, target.pid, tmp_path, SECONDS, RATE)
    verdict = legal.judge(table, recording.profile)
    assert verdict.illegal == 0, verdict.reasons
    assert recording.stats["unmatched"] <= 0.005 * recording.stats["samples"]
