"""Native programs: every stack whole and one that the program can have, whoever compiled it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
from support import bounds, builds, cli, native, stats
from support.builds import Program
from support.targets import compiled, started

RATE = 1000
SECONDS = 4 if cli.LONG else 1
WANTED = 5000 if cli.LONG else 400
"""Stacks of one program."""
ROUNDS = 20
"""A machine so loaded that it gives no more than a twentieth of that fails."""
FUNCTIONS = 200


@dataclass(frozen=True)
class Variant:
    language: str
    compiler: str
    options: tuple[str, ...]
    lines: bool = True
    """Whether there are line numbers to compare."""


def c(*options: str, compiler: str = "gcc") -> Variant:
    return Variant("c", compiler, options, "-g" in options)


VARIANTS = {
    "O0": c("-O0", "-g"),
    "O2": c("-O2", "-fomit-frame-pointer", "-g"),
    "O3-lto": c("-O3", "-flto", "-g"),
    "pointers": c("-O2", "-fno-omit-frame-pointer", "-g"),
    "no-debug-info": c("-O2"),
    "static-pie": c("-O2", "-static-pie", "-g"),
    "debug-frame": c("-O2", "-g", "-gz", "-fno-asynchronous-unwind-tables", "-fno-exceptions"),
    "gold": c("-O2", "-g", "-fuse-ld=gold"),
    "lld": c("-O2", "-g", "-fuse-ld=lld"),
    "musl": c("-O2", "-g", compiler="musl-gcc"),
    "musl-static": c("-O2", "-g", "-static", compiler="musl-gcc"),
    "c++-O0": Variant("cxx", "g++", ("-O0", "-g")),
    "c++-O2": Variant("cxx", "g++", ("-O2", "-g")),
    "rust-debug": Variant("rust", builds.rustc(), ("-g",)),
    "rust-release": Variant("rust", builds.rustc(), ("-O", "-g")),
    "rust-abort": Variant("rust", builds.rustc(), ("-O", "-Cpanic=abort"), lines=False),
}
O2 = VARIANTS["O2"]
MODES = ("signals", "altstack", "profile")
SIGNALS = (
    list(product(("O2", "O0", "static-pie", "musl", "c++-O2"), MODES))
    if cli.LONG
    else [
        *product(("O2",), MODES),
        ("static-pie", "altstack"),
        ("musl", "signals"),
        ("musl", "altstack"),
    ]
)


def build(variant: Variant) -> Program:
    return builds.build(variant.language, variant.compiler, *variant.options)


def check(
    program: Program,
    directory: Path,
    *arguments: str | Path,
    complete: float = 0.999,
    wanted: int = WANTED,
    under: tuple[str | Path, ...] = (),
) -> tuple[native.Verdict, cli.Recording]:
    """Record the program until there are enough stacks, and judge them; the last recording too. `under`: a command that
    executes the program."""
    total = native.Verdict()
    samples = cut = 0
    reasons: dict[str, int] = {}
    with started([*under, program.path, *arguments]) as target:
        for _ in range(ROUNDS):
            recording = cli.attach(target.pid, directory, SECONDS, RATE)
            verdict = native.judge(program.legal, recording.profile)
            assert verdict.illegal == 0, verdict.reasons.most_common(5)
            assert stats.faults(recording.stats, recording.profile) == []
            assert recording.stats["unmatched"] == 0
            samples += recording.stats["samples"]
            cut += recording.stats["samples"] - recording.stats["complete"]
            reasons.update(verdict.reasons)
            total.functions |= verdict.functions
            total.depth = max(total.depth, verdict.depth)
            total.lines += verdict.lines
            total.legal += verdict.legal
            for entry, below in verdict.bottoms.items():
                total.bottoms.setdefault(entry, set()).update(below)
            if samples >= wanted and (cut == 0 or cut <= (1 - complete) * samples):
                break
        assert target.process.poll() is None
    print(f"{samples} stacks, {cut} cut, depth {total.depth}, {len(total.functions)} functions")
    assert samples >= wanted, samples
    assert samples - cut >= complete * samples, (samples, cut, reasons)
    # However deep a stack, what is below the function that runs all the time is always the same.
    assert all(len(below) == 1 for below in total.bottoms.values()), total.bottoms
    return total, recording


@pytest.mark.parametrize("name", VARIANTS)
def test_stacks_of_known_callers(name: str, tmp_path: Path) -> None:
    variant = VARIANTS[name]
    verdict, _ = check(build(variant), tmp_path, "chains")
    assert verdict.depth >= 80, "the deep stacks were not seen"
    assert len(verdict.functions) >= FUNCTIONS, "most functions were never seen"
    assert set(verdict.bottoms) == {f"entry{chain}" for chain in range(native.DEEP)}
    assert (verdict.lines > 0) == variant.lines


@pytest.mark.parametrize("link", ("debuglink", "build-id"))
def test_separate_debug_information(link: str, tmp_path: Path) -> None:
    whole = build(O2)
    stripped = tmp_path / "stripped"
    notes = subprocess.run(["readelf", "-n", whole.path], capture_output=True, text=True, check=True).stdout
    build_id = notes.partition("Build ID: ")[2].split()[0]
    places = {"debuglink": ".debug/whole.debug", "build-id": f".build-id/{build_id[:2]}/{build_id[2:]}.debug"}
    debug = tmp_path / places[link]
    debug.parent.mkdir(parents=True)
    builds.run("objcopy", "--only-keep-debug", whole.path, debug)
    builds.run("objcopy", "--strip-all", whole.path, stripped)
    under: tuple[str | Path, ...] = ()
    if link == "debuglink":
        builds.run("objcopy", f"--add-gnu-debuglink={debug}", stripped)
    else:
        # Only the target's own mount namespace has the file where it belongs.
        script = 'mount --bind "$0" /usr/lib/debug && exec "$@"'
        under = ("unshare", "--map-root-user", "--mount", "sh", "-c", script, tmp_path)
    verdict, _ = check(Program(stripped, whole.legal), tmp_path, "chains", under=under)
    assert verdict.lines > 0


@pytest.mark.parametrize("language", ("c", "rust"))
def test_shares_of_a_known_split(language: str, tmp_path: Path) -> None:
    program = build({"c": O2, "rust": VARIANTS["rust-release"]}[language])
    with started([program.path, "split"]) as target:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(target.pid, {cores[0]})
        pin = functools.partial(os.sched_setaffinity, 0, {cores[-1]})
        recording = cli.attach(target.pid, tmp_path, 20 if cli.LONG else 4, RATE, preexec_fn=pin)
        measured = json.loads(target.terminate())
    truth = {name: spent / measured["total"] for name, spent in measured["spent"].items()}
    assert truth["half"] > 0.4 and truth["seventh"] > 0.05, truth
    names = {f"legal::{name}" if language == "rust" else name: share for name, share in truth.items()}
    for sample in recording.profile.samples:
        sample.frames = [native.renamed(frame, frame.qualified) for frame in sample.frames]
    faults, shares = bounds.share_faults(recording.profile, names, "cpu", recording.stats["samples"], 2 * len(names))
    print(shares, truth)
    assert faults == []


@pytest.mark.parametrize(("name", "mode"), SIGNALS)
def test_signal_handlers(name: str, mode: str, tmp_path: Path) -> None:
    """Handlers, handlers in handlers, on the same stack and on one of their own."""
    verdict, _ = check(build(VARIANTS[name]), tmp_path, mode, complete=0.995, wanted=WANTED // 2)
    assert any(function.startswith("chain4_") for function in verdict.functions), "no handler was seen"
    if mode != "profile":
        assert any(function.startswith("chain5_") for function in verdict.functions), "no nested handler was seen"
    assert any(function.startswith("chain0_") for function in verdict.functions)


@pytest.mark.parametrize("map_file", (False, True), ids=("bare", "perf-map"))
def test_code_of_no_file(map_file: bool, tmp_path: Path) -> None:
    """JIT'd code with frame pointers is walked through, and named where a perf map names it."""
    verdict, recording = check(build(O2), tmp_path, "jit", *(["map"] if map_file else []), wanted=WANTED // 2)
    assert any(function.startswith("chain6_") for function in verdict.functions), "what it calls was not seen"
    name = "jitted loop" if map_file else "_ExternalCode"
    names = recording.profile.functions()
    assert name in names and ({"jitted loop", "_ExternalCode"} - {name}).isdisjoint(names), names
    share = recording.profile.with_function(name, "samples") / recording.profile.total("samples")
    assert share > 0.95, "the JIT'd code is under nearly all"


def test_libraries_that_come_and_go(tmp_path: Path) -> None:
    library = compiled("native/loaded.c", "-shared", "-fPIC")
    verdict, _ = check(build(O2), tmp_path, "load", library, wanted=WANTED // 2)
    assert {"on_call", "run6", "entry_load"} <= verdict.functions


def test_another_library_in_the_place_of_one(tmp_path: Path) -> None:
    """Neither is taken for the other, though both have the same shape. On a busy machine some stacks are cut."""
    libraries = [compiled("native/loaded.c", "-shared", "-fPIC", f"-DNAME={name}") for name in ("on_call", "on_other")]
    verdict, _ = check(build(O2), tmp_path, "swap", *libraries, complete=0.8, wanted=WANTED // 2)
    assert {"on_call", "on_other", "run6", "entry_first", "entry_second"} <= verdict.functions


def test_deep_stacks(tmp_path: Path) -> None:
    """More than a first copy, and more than any copy may be."""
    program = build(O2)
    verdict, _ = check(program, tmp_path, "deep", "100", wanted=WANTED // 2)
    assert verdict.depth > 100 + native.LINKS
    with started([program.path, "deep", "100"]) as target:
        recording = cli.attach(target.pid, tmp_path, 1, RATE, "--max-stack", "64KiB")
    numbers = recording.stats
    # Small numbers of samples may be of moments when little of the stack was in use: none is, here.
    assert numbers["truncated"] == numbers["samples"] == numbers["cut"]["deeper than copied"] > 0
    assert stats.faults(numbers, recording.profile) == []
    for sample in recording.profile.samples:
        if sample.values["samples"]:
            assert sample.frames[0].name == "[truncated]"
            assert native.known(sample.frames[-1]) or len(sample.frames) > 2


def test_the_oracle_finds_wrong_stacks(tmp_path: Path) -> None:
    """The check can fail: a frame too few, a frame too many, two halves, a wrong line."""
    program = build(O2)
    with started([program.path, "chains"]) as target:
        profile = cli.attach(target.pid, tmp_path, 1, RATE).profile
    stacks = [sample.frames for sample in profile.samples if sample.values["samples"]]
    deep = [frames for frames in stacks if len(frames) > 60]
    first = deep[0]
    entries = {native.known(frame) for frame in first}
    other = next(frames for frames in deep if native.known(frames[40]) not in entries)
    legal = functools.partial(native.fault, program.legal, verdict=native.Verdict())
    assert legal(first) == ""
    own = [index for index, frame in enumerate(first) if native.known(frame)]
    # Where one function calls the next directly, and none itself.
    at = next(
        place
        for place in own[5:-5]
        if {place - 1, place + 1} <= set(own)
        and not any("recursive" in first[place + more].qualified for more in (-1, 0, 1))
    )
    assert legal([*first[:at], *first[at + 1 :]]) != "", "a frame too few"
    assert legal([*first[: at + 1], *first[at:]]) != "", "a frame too many"
    assert legal([*first[:at], *other[-20:]]) != "", "two halves"
    assert legal(first[own[3] :]) != "", "no root"
    wrong = native.renamed(first[at], first[at].qualified, line=1)
    assert legal([*first[:at], wrong, *first[at + 1 :]]) != "", "a wrong line"
