"""Mixed stacks where the stack is not what it seems: greenlets, other interpreters, threads that are Python's only now
and then, interpreters that do not name their evaluation loop."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from support import cli, stats
from support.pprof import Frame, Profile, Sample
from support.targets import VERSIONS, Running, compiled, interpreter, packages, program, started

SECONDS = 10 if cli.LONG else 1
WANTED = 5_000 if cli.LONG else 300
ROUNDS = 10


def python_names(sample: Sample) -> list[str]:
    return [frame.name for frame in sample.python()]


def whole_samples(profile: Profile) -> list[Sample]:
    """Those that do not say of themselves that something is missing."""
    broken = ("[truncated]", "[unmatched]", "[unreadable", "[unsampled]")
    return [
        sample
        for sample in profile.samples
        if sample.values["samples"] and not any(name.startswith(broken) for name in sample.names())
    ]


def record(target: Running, directory: Path, *options: str) -> tuple[list[Sample], dict[str, int]]:
    """All whole samples, and the sums of the figures, of as many recordings as it takes."""
    samples: list[Sample] = []
    figures: Counter[str] = Counter()
    for _ in range(ROUNDS):
        recording = cli.attach(target.pid, directory, SECONDS, 1000, *options)
        assert stats.faults(recording.stats, recording.profile) == []
        samples += whole_samples(recording.profile)
        for name in ("samples", "complete", "truncated", "unmatched"):
            figures[name] += recording.stats[name]
        if figures["samples"] >= WANTED:
            return samples, figures
    raise AssertionError(f"{figures} in {ROUNDS} recordings")


@pytest.mark.parametrize("version", VERSIONS if cli.LONG else ("3.8", "3.12", "3.14"))
def test_a_greenlets_stack_begins_where_it_began(version: str, tmp_path: Path) -> None:
    """What lies below on the stack belongs to another greenlet, or to none any more."""
    calls = {"first": {"sorts"}, "sorts": {"key"}, "key": {"spin"}, "second": {"deep"}, "deep": {"deep", "spin"}}
    calls |= {"<module>": {"spin"}, "spin": set()}
    roots: Counter[str] = Counter()
    with started(program("mixed_greenlets.py", packages(version), version=version)) as target:
        samples, figures = record(target, tmp_path)
    for sample in samples:
        names = python_names(sample)
        roots[names[0]] += sample.values["samples"]
        assert names[0] in ("<module>", "first", "second"), names
        for caller, callee in pairwise(names):
            assert callee in calls[caller], names
        if names[0] != "<module>":
            below = sample.names()[: sample.names().index(names[0])]
            assert not {"_start", "main", "__libc_start_main_impl"} & set(below), below
    assert min(roots[name] for name in ("<module>", "first", "second")) > 10, roots
    print(version, figures, roots)
    # A switch moves stacks about: what is met in the middle of one is said to be cut short, or not to match.
    assert figures["unmatched"] <= figures["samples"] * (0.15 if version in ("3.8", "3.10") else 0.01), figures
    assert figures["truncated"] <= figures["samples"] * 0.05, figures


@pytest.mark.parametrize("version, option", (("3.13", "--native"), ("3.14", "--native"), ("3.14", "--no-native")))
def test_frames_of_another_interpreter(version: str, option: str, tmp_path: Path) -> None:
    with started(program("mixed_nested.py", version=version)) as target:
        samples, figures = record(target, tmp_path, option)
    outside = ["<module>", "outer", "runs"]
    deepest = [*outside, "<module>", "inner", "key", "spin"]
    inside = 0
    for sample in samples:
        names = python_names(sample)
        assert names == deepest[: len(names)] or names[: len(outside)] != outside, names
        inside += sample.values["samples"] if "inner" in names else 0
    total = sum(sample.values["samples"] for sample in samples)
    assert inside > total * 0.5, (inside, total)
    assert figures["unmatched"] <= figures["samples"] * 0.002, figures
    assert figures["complete"] >= figures["samples"] * 0.99, figures


@pytest.mark.parametrize("version", VERSIONS if cli.LONG else ("3.8", "3.11", "3.14"))
def test_a_thread_that_is_pythons_only_now_and_then(version: str, tmp_path: Path) -> None:
    library = compiled("mixed_pool.c", "-shared", "-fPIC", "-pthread")
    with started(program("mixed_pool.py", library, "20", version=version)) as target:
        samples, figures = record(target, tmp_path, "--no-idle", "--native-all")
    seen: Counter[str] = Counter()
    missed = 0
    for sample in samples:
        names, python = sample.names(), python_names(sample)
        if "pool_loop" not in names:
            continue
        count = sample.values["samples"]
        if "pool_alone" in names:
            assert python == [], names
            seen["alone"] += count
        elif python:
            assert python in (["called"], ["called", "spin"]), python
            seen["called"] += count
        elif "_PyEval_EvalFrameDefault" in names[:-1] and names[-1] != "_PyEval_EvalFrameDefault":
            missed += count
    print(version, figures, seen, missed)
    assert min(seen["alone"], seen["called"]) > 10, seen
    assert missed <= max(1, seen["called"] * 0.01), (missed, seen)
    assert figures["unmatched"] <= max(1, figures["samples"] * 0.001), figures


def nameless(version: str, directory: Path) -> dict[str, str]:
    """The environment in which that CPython runs with a library that does not tell where its evaluation loop is."""
    original = next((interpreter(version).parents[1] / "lib").glob(f"libpython{version}.so.*"))
    copy = directory / original.name
    shutil.copy(original, copy)
    subprocess.run(["strip", "--strip-all", copy], check=True)
    with copy.open("r+b") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        index = [symbol.name for symbol in table.iter_symbols()].index("_PyEval_EvalFrameDefault")
        # st_size of Elf64_Sym: the linker needs the name, it does not need the size.
        file.seek(table["sh_offset"] + index * table["sh_entsize"] + 16)
        file.write(bytes(8))
    return {**os.environ, "LD_LIBRARY_PATH": str(directory)}


def in_order(frames: list[Frame]) -> bool:
    """Whether `reduces` stands over `sort_key` over `sorts`, native frames between each."""
    names = [frame.name for frame in frames]
    places = [names.index(name) for name in ("sorts", "sort_key", "reduces") if name in names]
    return all(second - first > 1 for first, second in pairwise(places))


@pytest.mark.parametrize("version", ("3.11", "3.13"))
def test_the_evaluation_loop_is_found_without_its_name(version: str, tmp_path: Path) -> None:
    environment = nameless(version, tmp_path)
    command = program("mixed.py", packages(version), "1", version=version)
    with started(command, env=environment) as target:
        samples, figures = record(target, tmp_path)
    print(version, figures)
    assert figures["unmatched"] <= max(1, figures["samples"] * 0.001), figures
    keyed = [sample for sample in samples if "sort_key" in sample.names()]
    assert keyed
    for sample in keyed:
        assert in_order(sample.frames), sample.names()


def test_before_3_11_both_halves_are_kept_where_the_loop_has_no_name(tmp_path: Path) -> None:
    environment = nameless("3.10", tmp_path)
    with started(program("mixed.py", packages("3.10"), "1", version="3.10"), env=environment) as target:
        recording = cli.attach(target.pid, tmp_path, 1, 1000)
    figures, profile = recording.stats, recording.profile
    assert figures["unmatched"] >= figures["samples"] * 0.99 > 0, figures
    assert stats.faults(figures, profile) == []
    for sample in profile.samples:
        if sample.values["samples"]:
            names = sample.names()
            middle = names.index("[unmatched]")
            assert names[0] == "<module>"
            assert all(frame.address == 0 for frame in sample.frames[:middle])
            assert all(frame.address or frame.name.startswith("[") for frame in sample.frames[middle + 1 :])
            assert names[middle + 1 :]
