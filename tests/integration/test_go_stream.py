"""The record stream of a real Go program: what comes out is what runtime/pprof makes of the very same words."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.gotool import go, go_pprof
from support.targets import ROOT

from remoteprof.modules import parse_maps
from remoteprof.profile.deck import Frame
from remoteprof.profile.records import Records


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """What tests/targets/records got from Go's runtime, and the profile that runtime/pprof made of it."""
    directory = tmp_path_factory.mktemp("records")
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOPROXY": "off"}
    told = subprocess.run([go(), "env", "GOVERSION"], env=environment, capture_output=True, text=True, check=True)
    version = re.match(r"go1\.(\d+)", told.stdout)
    assert version, told.stdout
    # Since 1.23 the linker refuses what the program does.
    flags = ["-ldflags=-checklinkname=0"] if int(version[1]) >= 23 else []
    built = subprocess.run(
        [go(), "build", *flags, "-o", str(directory / "records"), "."],
        cwd=ROOT / "tests/targets/records",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    subprocess.run([directory / "records", directory / "words.json", directory / "go.pb.gz"], check=True)
    return json.loads((directory / "words.json").read_text(encoding="utf-8")), directory / "go.pb.gz"


def stream_of(made: dict[str, Any], **options: Any) -> Records:
    symbols = {int(address) - 1: [Frame(*row.values()) for row in rows] for address, rows in made["Symbols"].items()}
    callers = {int(address) - 1: found for address, found in made["Callers"].items()}
    return Records(parse_maps(made["Maps"]), lambda at: symbols[at], callers=lambda at: callers.get(at, ()), **options)


def raw(path: Path) -> list[str]:
    """What pprof shows, without what Go does not write (has_filenames, …) or reads elsewhere (build ids, times)."""
    text = go_pprof("-raw", "-symbolize=none", path)
    text = re.sub(r"(?m)^(Time|Duration): .*\n", "", text)
    text = re.sub(r"(?m)^(\d+: 0x\S+ \S+) [0-9a-f]* ?(\[FN\])?.*$", r"\1 \2", text)
    return text.splitlines()


def test_it_is_what_go_makes_of_it(recorded: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    made, theirs = recorded
    stream = stream_of(made)
    for words in made["Calls"]:
        stream.add(words)
    with (tmp_path / "ours.pb.gz").open("wb") as file:
        stream.write(file)
    ours = raw(tmp_path / "ours.pb.gz")
    assert sum("[FN]" in line for line in ours) >= 1
    assert ours == raw(theirs)


def test_the_recording_has_what_it_is_for(recorded: tuple[dict[str, Any], Path]) -> None:
    """Inlined calls in one location, both instances of a generic function, deep stacks."""
    made, _ = recorded
    stream = stream_of(made)
    for words in made["Calls"]:
        stream.add(words)
    profile = stream.profile()
    locations = [location for sample in profile.samples for location in sample.locations]
    chains = {tuple(line.function.name for line in location.lines) for location in locations}
    assert any(chain[-2:] == ("main.inner", "main.outer") for chain in chains), chains
    assert max(len(sample.locations) for sample in profile.samples) > 50
    assert not any(line.function.name == "runtime.goexit" for location in locations for line in location.lines)
    assert profile.total("samples") == sum(words[2] for call in records_of(made["Calls"]) for words in call)


def records_of(calls: list[list[int]]) -> list[list[list[int]]]:
    found: list[list[list[int]]] = []
    for number, words in enumerate(calls):
        rest = words if number else words[3:]
        found.append([])
        while rest:
            found[-1].append(rest[: rest[0]])
            rest = rest[rest[0] :]
    return found


def test_spilled_it_says_the_same(recorded: tuple[dict[str, Any], Path]) -> None:
    made, _ = recorded
    out = []
    for options in ({}, {"max_held": 2_000}):
        stream = stream_of(made, **options)
        for words in made["Calls"]:
            stream.add(words)
        stream.write(io.BytesIO())
        out.append(stream.profile())
    whole, spilled = out
    assert len(spilled.samples) >= len(whole.samples)
    tables = [{(row.function, row.flat, row.cumulative) for row in profile.top()} for profile in out]
    assert tables[0] == tables[1]
    assert spilled.merge().total("cpu") == whole.total("cpu")
    assert len(spilled.merge().samples) == len(whole.merge().samples)
