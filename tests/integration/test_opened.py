"""Opened: `go tool pprof` reads the profile in every way; what stands in it is what surface.md says."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest
from support import cli, pprof, stats
from support.gotool import go_pprof
from support.targets import ROOT, program, started

DEMO = ROOT / "scripts" / "demo_program.py"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> tuple[cli.Recording, cli.Recording]:
    """Two recordings of one program."""
    directory = tmp_path_factory.mktemp("opened")
    with started([*program("idle.py")[:1], DEMO, "600"]) as target:
        (directory / "second").mkdir()
        first = cli.attach(target.pid, directory, 2, 500)
        second = cli.attach(target.pid, directory / "second", 2, 500)
    return first, second


@pytest.mark.parametrize(
    ("options", "shown"),
    (
        (["-raw"], "PeriodType: wall nanoseconds"),
        (["-top"], "flat%"),
        (["-top", "-cum", "-nodecount=2000", "-nodefraction=0"], "handle_batch"),
        (["-top", "-cum", "-nodecount=100"], "  <module>\n"),
        (["-peek", "loads|parse.<locals>", "-nodefraction=0", "-edgefraction=0"], "parse.<locals>.<listcomp>"),
        # pprof shows the 80 heaviest nodes where it is not told otherwise.
        (["-tree", "-nodecount=2000", "-nodefraction=0", "-edgefraction=0"], "handle_batch"),
        (["-peek", "discount", "-nodefraction=0", "-edgefraction=0"], "price"),
        (["-list", "discount"], "rate += (0.9 - rate)"),
        (["-traces"], "main"),
        (["-text", "-lines"], "demo_program.py:"),
        (["-sample_index=samples", "-top"], "Type: samples"),
        (["-sample_index=cpu", "-top"], "Type: cpu"),
        (["-sample_index=wall", "-top"], "Type: wall"),
        (["-sample_index=gil", "-top"], "Type: gil"),
        (["-tags"], "thread_name"),
        (["-tagfocus=thread_name=python", "-top"], "discount"),
        (["-tagroot=thread_name", "-top", "-cum", "-nodecount=2000", "-nodefraction=0"], "handle_batch"),
        (["-dot"], "digraph"),
        (["-symbolize=none", "-top"], "discount"),
        (["-symbolize=local", "-top"], "discount"),
    ),
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_go_tool_pprof(recordings: tuple[cli.Recording, cli.Recording], options: list[str], shown: str) -> None:
    assert shown in go_pprof(*options, recordings[0].path)


def test_default_type_is_cpu(recordings: tuple[cli.Recording, cli.Recording]) -> None:
    assert "Type: cpu" in go_pprof("-top", recordings[0].path)


def test_base_and_diff_base(recordings: tuple[cli.Recording, cli.Recording]) -> None:
    first, second = recordings
    assert "flat%" in go_pprof("-top", f"-base={first.path}", second.path)
    assert "flat%" in go_pprof("-top", f"-diff_base={first.path}", second.path)
    assert "flat%" in go_pprof("-top", "-normalize", f"-diff_base={first.path}", second.path)
    # A profile less itself is nothing.
    same = go_pprof("-raw", "-sample_index=samples", f"-base={first.path}", first.path)
    assert "discount" not in same.partition("Locations")[0].partition("Samples:")[2]


def test_written_again_by_pprof(recordings: tuple[cli.Recording, cli.Recording], tmp_path: Path) -> None:
    first, _ = recordings
    again = tmp_path / "again.pb.gz"
    go_pprof("-proto", f"-output={again}", first.path)
    copy = pprof.load(again)
    for name, _ in first.profile.types:
        assert copy.total(name) == first.profile.total(name)
    assert copy.types == first.profile.types
    assert copy.period == first.profile.period


def test_what_stands_in_it(recordings: tuple[cli.Recording, cli.Recording]) -> None:
    first, _ = recordings
    profile = first.profile
    assert stats.faults(first.stats, profile) == []
    assert profile.types == [
        ("samples", "count"),
        ("cpu", "nanoseconds"),
        ("wall", "nanoseconds"),
        ("gil", "nanoseconds"),
    ]
    assert profile.default_type == "cpu"
    assert profile.period == 2_000_000
    assert profile.period_type == ("wall", "nanoseconds")
    assert profile.duration_ns == first.stats["duration_ns"]
    assert profile.message.string_table[0] == b""
    assert any("remoteprof attach" in comment for comment in profile.comments), profile.comments
    assert len(profile.comments) >= 3
    assert first.path.read_bytes()[:2] == b"\x1f\x8b"
    assert first.stats["output_bytes"] == first.path.stat().st_size
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    for sample in profile.samples:
        assert sample.labels["pid"] == first.stats["pid"]
        assert isinstance(sample.labels["thread_id"], int)
    message = profile.message
    for rows in (message.location, message.function, message.mapping):
        identities = [row.id for row in rows]
        assert len(set(identities)) == len(identities) and 0 not in identities
    used = {ident for sample in message.sample for ident in sample.location_id}
    assert used == {location.id for location in message.location}
    for function in message.function:
        assert function.name and function.system_name
    python = [location for location in message.location if not location.address]
    assert all(location.mapping_id == 0 for location in python)
    assert profile.with_function("discount", "cpu") > 0.1 * profile.total("cpu")
    assert profile.total("gil") <= profile.total("wall")
    assert profile.mappings and profile.mappings[0] == str(Path(f"/{'/'.join(Path(profile.mappings[0]).parts[1:])}"))


def test_summary_names_the_heaviest_and_the_next_command(recordings: tuple[cli.Recording, cli.Recording]) -> None:
    errors = recordings[0].result.stderr
    assert "discount" in errors
    assert "go tool pprof" in errors and str(recordings[0].path) in errors
    assert "\x1b" not in errors and "\r" not in errors, "a progress line where there is no terminal"
    assert recordings[0].result.stdout == ""


@pytest.mark.parametrize("name", ("out.pb", "out.pb.gz", "-"))
def test_outputs(name: str, tmp_path: Path) -> None:
    with started(program("idle.py")) as target:
        result = cli.remoteprof("attach", target.pid, "-d", "300ms", "-o", name, "-q", cwd=tmp_path, text=False)
        assert result.status == 0, result.stderr
        if name != "-":
            assert pprof.load(tmp_path / name).samples
            assert (tmp_path / name).read_bytes()[:2] == (b"\x1f\x8b" if name.endswith(".gz") else b"\x0a\x04")
            assert result.stdout == ""
        assert [path.name for path in tmp_path.iterdir()] == ([] if name == "-" else [name])
        # Without -o the file is named after the program.
        result = cli.remoteprof("attach", target.pid, "-d", "300ms", "-q", cwd=tmp_path)
        assert result.status == 0, result.stderr
        assert len(list(tmp_path.glob(f"*-{target.pid}.pb.gz"))) == 1


def test_standard_output_is_the_profile_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.pb.gz"
    with started(program("idle.py")) as target, path.open("wb") as output:
        done = subprocess.run(
            [cli.COMMAND, "attach", str(target.pid), "-d", "300ms", "-o", "-"], stdout=output, check=False
        )
    assert done.returncode == 0
    assert pprof.load(path).samples
