"""Mixed: one stack of Python and native frames, in the order in which they called each other, on every CPython."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from support import cli, stats
from support.pprof import Frame, Profile, Sample
from support.targets import TARGETS, Running, packages, program, started

SECONDS = 20 if cli.LONG else 2
WANTED = 10_000 if cli.LONG else 1_500
"""Samples of one version."""
ROUNDS = 10
FAULTS = 0.001
"""Share of samples that may have no right order."""
STRIPPED = ("3.14",)
"""Without a symbol table: there C functions between Python frames count, not their names."""

SOURCE = TARGETS / "mixed.py"
DIRECT: tuple[str, ...] = ()
"""Python calls Python: nothing lies between."""
SLOT = ("slot",)
"""What lies between only leads from one to the other: nothing of it is shown."""

# Function -> (caller, the C functions between, all of which must be there; "a|b" = one of them).
CALLS: dict[str, dict[str, tuple[str, ...]]] = {
    "work": {"<module>": DIRECT, "run": DIRECT},
    "round_trip": {"work": DIRECT},
    "sorts": {"round_trip": DIRECT, "__del__": DIRECT},
    "sort_key": {"sorts": ("builtin_sorted", "list_sort_impl")},
    "reduces": {"sort_key": ("functools_reduce",)},
    "orders": {"round_trip": DIRECT},
    "__lt__": {"orders": ("list_sort_impl", "unsafe_object_compare")},
    "quick": {"round_trip": DIRECT},
    "compared": {"quick": ("ffi_call", "__GI___qsort_r|qsort_r|qsort|__GI_qsort", "_CallPythonObject")},
    "hashes": {"compared": DIRECT},
    "substitutes": {"round_trip": DIRECT},
    "replaced": {"sub": ("pattern_subx",)},
    "packs": {"replaced": DIRECT},
    "encodes": {"round_trip": DIRECT},
    "encoded": {"iterencode": ("encoder_call", "encoder_listencode_obj")},
    "numbers": {"delegates": SLOT},
    "delegates": {"sums": ("builtin_sum",), "plain": SLOT},
    "sums": {"round_trip": DIRECT},
    "plain": {"round_trip": DIRECT, "mapped": DIRECT},
    "__del__": {"drops": ("subtype_dealloc",)},
    "drops": {"round_trip": DIRECT},
    "mapped": {"maps": ("list_extend|_list_extend|list___init___impl", "map_next")},
    "maps": {"round_trip": DIRECT},
    "applied": {"apply_along_axis": DIRECT},
    "applies": {"round_trip": DIRECT},
    "adds": {"round_trip": DIRECT},
    "reads": {"round_trip": DIRECT},
    "value": {"reads": ("_PyObject_GenericGetAttrWithDict|property_descr_get",)},
    "__getattr__": {"reads": ("builtin_getattr",)},
    "__hash__": {"reads": ("PyDict_SetItem|_PyDict_FromItems",)},
    "__contains__": {"reads": SLOT},
    "__call__": {"reads": SLOT},
    "__iter__": {"reads": ("PyObject_GetIter",)},
    "__repr__": {"reads": ("list_repr",)},
    "spin": dict.fromkeys(
        (
            *("reduces", "__lt__", "encoded", "numbers", "plain", "applied", "value", "__getattr__", "__hash__"),
            *("__contains__", "__call__", "__iter__", "__repr__"),
        ),
        DIRECT,
    ),
}
WORK = {
    "packs": ("zlib.compress(", ("deflate", "zlib_compress", "crc32", "adler32")),
    "hashes": ("hashlib.sha256(", ("_hashlib_openssl_sha256", "SHA256_", "EVP_Digest", "EVP_MD_CTX_")),
    "adds": ("numpy.add(", ("DOUBLE_add", "try_trivial_single_output_loop")),
}
"""Function -> its only call, and how the names of the native functions begin that run under it alone."""
LEADS = (
    *("_PyEval_EvalFrame", "_PyEval_Vector", "_PyFunction_Vectorcall", "function_code_fastcall", "call_function"),
    *("_PyObject_MakeTpCall", "PyObject_Vectorcall", "_PyObject_Vectorcall", "cfunction_vectorcall_", "_PyArg_"),
)


@dataclass
class Verdict:
    samples: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    under: Counter[str] = field(default_factory=Counter)
    """Samples with native work under its Python function."""
    alone: Counter[str] = field(default_factory=Counter)
    """Samples at that function's call without any native function."""

    def add(self, other: Verdict) -> None:
        self.samples += other.samples
        self.faults += other.faults
        self.pairs |= other.pairs
        self.under += other.under
        self.alone += other.alone


def is_python(frame: Frame) -> bool:
    return frame.address == 0 and not frame.name.startswith("[")


def line_of(text: str) -> int:
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    (line,) = (number for number, line in enumerate(lines, 1) if text in line)
    return line


def ours(frame: Frame) -> bool:
    return frame.file == str(SOURCE)


def call_fault(caller: Frame, callee: Frame, between: list[str], named: bool) -> str:
    """Why these two Python frames cannot have these native ones between them; "" where they can."""
    if not ours(callee):
        return ""
    needed = CALLS[callee.name].get(caller.name)
    step = f"{caller.name} -> {callee.name}"
    if needed is None:
        return f"{step}: no such call"
    if needed == DIRECT or (needed == SLOT and named):
        return f"{step}: over {' '.join(between)}" if between else ""
    if not named:
        return "" if between or needed == SLOT else f"{step}: no C function between"
    for names in needed:
        if not any(name in between for name in names.split("|")):
            return f"{step}: no {names} among {' '.join(between)}"
    return ""


def sample_fault(sample: Sample, named: bool, verdict: Verdict) -> str:
    """Why this stack cannot have been; "" where it can. Notes in `verdict` what was seen."""
    frames = sample.frames
    if "[unmatched]" in sample.names():
        return "[unmatched]"
    places = [index for index, frame in enumerate(frames) if is_python(frame)]
    if not places:
        return f"no Python frame: {' '.join(sample.names()[:8])}"
    if frames[places[0]].name not in ("<module>", "_bootstrap"):
        return f"root is {frames[places[0]].name}"
    for first, second in pairwise(places):
        caller, callee = frames[first], frames[second]
        reason = call_fault(caller, callee, [frame.name for frame in frames[first + 1 : second]], named)
        if reason:
            return reason
        if ours(callee):
            verdict.pairs.add((caller.name, callee.name))
    leaf, count = frames[places[-1]], sample.values["samples"]
    on_top = [frame.name for frame in frames[places[-1] + 1 :]]
    for function, (call, names) in WORK.items():
        works = any(name.startswith(names) for name in on_top)
        at_call = ours(leaf) and leaf.name == function and leaf.line == line_of(call)
        if works and not at_call and ours(leaf):
            return f"{' '.join(on_top)} under {leaf.name}:{leaf.line}"
        verdict.under[function] += count if works else 0
        verdict.alone[function] += count if at_call and not on_top else 0
    below = [frame.name for frame in frames[: places[0]]]
    if named and not {"main", "__libc_start_main_impl", "start_thread", "__libc_start_main"} & set(below):
        return f"below the first Python frame: {' '.join(below)}"
    return ""


def judge(profile: Profile, named: bool) -> Verdict:
    verdict = Verdict()
    for sample in profile.samples:
        count = sample.values["samples"]
        labels = {frame.name for frame in sample.frames if frame.name.startswith("[")}
        # What could not be read whole is counted elsewhere, and says so.
        if not count or "[truncated]" in labels or any(label.startswith("[unreadable") for label in labels):
            continue
        verdict.samples += count
        reason = sample_fault(sample, named, verdict)
        if reason:
            verdict.faults[reason] += count
    return verdict


def test_python_and_c_stand_in_the_order_of_their_calls(version: str, tmp_path: Path) -> None:
    named = version not in STRIPPED
    total, recorded, unmatched, whole = Verdict(), 0, 0, 0
    with started(program("mixed.py", packages(version), "2", version=version)) as target:
        for _ in range(ROUNDS):
            recording = cli.attach(target.pid, tmp_path, SECONDS, 1000)
            assert stats.faults(recording.stats, recording.profile) == []
            total.add(judge(recording.profile, named))
            recorded += recording.stats["samples"]
            whole += recording.stats["complete"]
            unmatched += recording.stats["unmatched"]
            shown = recording.profile.functions()
            assert not named or [name for name in shown if name.startswith(LEADS)] == []
            if total.samples >= WANTED:
                break
    print(version, total.samples, recorded, whole, unmatched, total.faults.most_common(5), total.under, total.alone)
    assert total.samples >= WANTED
    assert recorded - whole <= max(3, recorded * FAULTS * 2), f"{whole} complete of {recorded}"
    assert unmatched <= max(1, recorded * FAULTS), f"{unmatched} of {recorded}"
    assert total.faults.total() <= max(1, total.samples * FAULTS), total.faults.most_common(10)
    # The program was seen, not a part of it.
    wanted = {(caller, callee) for callee, callers in CALLS.items() for caller in callers}
    rare = {"__contains__", "__call__", "__hash__", "__iter__", "__getattr__", "__repr__", "value", "applied"}
    missing = {pair for pair in wanted - total.pairs if not rare & set(pair)}
    assert len(missing) <= 3, missing
    for function in WORK:
        assert total.under[function] > 5, (function, total.under)
        # Of the way there and back nothing is shown.
        assert total.under[function] > total.alone[function], (function, total.under, total.alone)


def test_the_oracle_finds_what_is_in_no_order(tmp_path: Path) -> None:
    """The check can fail: frames moved, left out or put elsewhere are found."""
    with started(program("mixed.py", packages("3.12"), "1", version="3.12")) as target:
        profile = cli.attach(target.pid, tmp_path, 2, 1000).profile
    verdict = Verdict()

    def fault(sample: Sample, frames: list[Frame]) -> str:
        return sample_fault(Sample(frames, sample.values, sample.labels), True, verdict)

    seen = 0
    for sample in profile.samples:
        names = sample.names()
        if "sort_key" in names and names.count("builtin_sorted") == 1 and not fault(sample, sample.frames):
            at = names.index("builtin_sorted")
            frames = sample.frames
            assert fault(sample, frames[:at] + frames[at + 1 :])
            assert fault(sample, [*frames[: at - 1], frames[at], frames[at - 1], *frames[at + 1 :]])
            key = names.index("sort_key")
            assert fault(sample, [*frames[: key - 1], frames[key], frames[key - 1], *frames[key + 1 :]])
            assert fault(sample, [frame for frame in frames if is_python(frame)])
            assert fault(sample, [*frames[:key], frames[at], *frames[key + 1 :]]) or "reduces" not in names
            seen += 1
    assert seen


def is_subsequence(short: list[str], long: list[str]) -> bool:
    rest = iter(long)
    return all(name in rest for name in short)


def one_stack(target: Running, directory: Path, *options: str) -> list[Frame]:
    """The stack of a program that waits."""
    profile = cli.attach(target.pid, directory, 0.5, 100, *options).profile
    stacks = [sample.frames for sample in profile.samples if sample.values["samples"]]
    assert stacks
    assert all(stack == stacks[0] for stack in stacks)
    return stacks[0]


@pytest.mark.parametrize("version", ("3.8", "3.12", "3.14"))
def test_what_is_shown(version: str, tmp_path: Path) -> None:
    """--no-native: exactly the Python frames. --native-all: all that there is, in the same order."""
    with started(program("mixed.py", packages(version), "0", version=version)) as target:
        merged = one_stack(target, tmp_path)
        python = one_stack(target, tmp_path, "--no-native")
        everything = one_stack(target, tmp_path, "--native-all")
    assert [frame.name for frame in python][-3:] == ["<module>", "parks", "waits"]
    assert [frame for frame in merged if is_python(frame)] == python
    assert [frame for frame in everything if is_python(frame)] == python
    names, every = [frame.name for frame in merged], [frame.name for frame in everything]
    assert is_subsequence(names, every)
    assert names[-1].startswith("[syscall: ")
    assert "read" in names[-1]
    assert len(every) > len(names)
    if version not in STRIPPED:
        assert not [name for name in names if name.startswith(LEADS)]
        # 3.11 and later run several Python frames in one evaluation.
        runs = every.count("_PyEval_EvalFrameDefault")
        assert runs == (len(python) if version == "3.8" else 2)
        assert {"builtin_sorted", "list_sort_impl"} <= set(names)
        assert any(name.startswith(LEADS[2:]) for name in every), every
