"""Right: no stack that the program could not have had, at any rate, on any supported CPython; true shares."""

from __future__ import annotations

import functools
import json
import os
import shutil
from pathlib import Path

import pytest
from support import bounds, cli, legal, stats
from support.targets import interpreter, program, started, thread_states

RATES = (100, 1000, 5000)
SECONDS = 3
WANTED = 20_000 if cli.LONG else 8_000
"""Samples of one version, over the three rates together."""
ROUNDS = 10
"""A machine so loaded that it gives no more than a tenth of the samples fails."""


def test_no_illegal_stack(version: str, tmp_path: Path) -> None:
    table = legal.generate(tmp_path / "generated.py", seed=int(version.replace(".", "")))
    assert table.functions >= 500
    total = legal.Verdict()
    with started([interpreter(version), table.path]) as target:
        for _ in range(ROUNDS):
            for rate in RATES:
                recording = cli.attach(target.pid, tmp_path, SECONDS, rate)
                verdict = legal.judge(table, recording.profile)
                assert verdict.illegal == 0, f"{verdict.illegal} of {verdict.samples}: {verdict.reasons.most_common(5)}"
                assert verdict.unreadable == 0, verdict.reasons
                assert verdict.truncated <= max(3, verdict.samples * 0.01), verdict
                assert stats.faults(recording.stats, recording.profile) == []
                assert recording.stats["samples"] > 0
                total.samples += verdict.samples
                total.functions |= verdict.functions
                total.depth = max(total.depth, verdict.depth)
            if total.samples >= WANTED:
                break
        assert target.process.poll() is None
        assert set(thread_states(target.pid).values()) <= {"R", "S"}
    assert total.samples >= WANTED
    assert total.depth >= 75, "the deep stacks were not seen"
    assert len(total.functions) >= 400, "most functions were never seen"


def test_the_oracle_finds_mixed_stacks(tmp_path: Path) -> None:
    """The check can fail: a stack whose halves are of two moments is found illegal."""
    table = legal.generate(tmp_path / "generated.py")
    with started([interpreter("3.12"), table.path]) as target:
        recording = cli.attach(target.pid, tmp_path, 1, 500)
    whole = [sample.python() for sample in recording.profile.samples if sample.python()]
    assert whole
    deep = [frames for frames in whole if len(frames) > 30]
    first = deep[0]
    other = next(frames for frames in deep if frames[2].name != first[2].name)
    assert legal.fault(table, first) == ""
    assert legal.fault(table, first[:20] + other[20:]) != ""
    assert legal.fault(table, first[1:]) != ""
    assert legal.fault(table, first[:10] + first[11:]) != ""


@pytest.mark.parametrize("timer", (False, True), ids=("plain", "timer"))
@pytest.mark.parametrize("rate", (100, 1000))
def test_shares_of_a_known_split(timer: bool, rate: int, tmp_path: Path) -> None:
    versions = ("3.8", "3.11", "3.13", "3.14") if cli.LONG else ("3.10", "3.13")
    seconds = 20 if cli.LONG else 6
    faults = []
    for version in versions:
        directory = tmp_path / version
        directory.mkdir()
        arguments = ["--timer"] if timer else []
        with started(program("split.py", *arguments, version=version)) as target:
            # On a core each, as far as there are two: who waits for a core is seen where it waited.
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(target.pid, {cores[0]})
            pin = functools.partial(os.sched_setaffinity, 0, {cores[-1]})
            recording = cli.attach(target.pid, directory, seconds, rate, preexec_fn=pin)
            measured = json.loads(target.terminate())
        truth = {name: spent / measured["total"] for name, spent in measured["spent"].items()}
        if timer:
            assert truth["on_timer"] > 0.01, "the timer did not run"
        assert sum(truth[name] for name in ("half", "third", "seventh", "rest")) > 0.95, truth
        comparisons = 2 * 2 * len(versions) * len(truth)
        found, shares = bounds.share_faults(recording.profile, truth, "cpu", recording.stats["samples"], comparisons)
        faults += [f"{version}: {fault}" for fault in found]
        assert stats.faults(recording.stats, recording.profile) == []
        print(version, rate, {name: (round(shares[name], 4), round(truth[name], 4)) for name in truth})
    assert faults == []


def test_lines_and_qualified_names(version: str, tmp_path: Path) -> None:
    """Names, files, lines and first lines of known functions, in the dump of a program that waits."""
    source = tmp_path / "named.py"
    source.write_text(
        "import sys\n"
        "class Outer:\n"
        "    class Inner:\n"
        "        def method(self):\n"
        "            inner = lambda: sys.stdin.read(\n"
        "            )\n"
        "            return inner()\n"
        "def größe(value):\n"
        "    return (value\n"
        "            or Outer.Inner().method())\n"
        "print('ready', flush=True)\n"
        "größe(0)\n",
        encoding="utf-8",
    )
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    with started([interpreter(version), source]) as target:
        recording = cli.attach(target.pid, tmp_path, 1, 100)
    stacks = [sample.python() for sample in recording.profile.samples if sample.values["samples"]]
    assert stacks
    frames = stacks[0]
    new = tuple(int(part) for part in version.split(".")) >= (3, 11)
    names = ["<module>", "größe", "Outer.Inner.method" if new else "method"]
    names.append("Outer.Inner.method.<locals>.<lambda>" if new else "<lambda>")
    assert [frame.qualified for frame in frames[:4]] == names
    assert [frame.line for frame in frames[:4]] == [12, 10, 7, 5]
    assert [frame.start_line for frame in frames[1:4]] == [8, 4, 5]
    assert {frame.file for frame in frames[:4]} == {str(source)}
