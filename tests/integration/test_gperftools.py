"""Profiles that gperftools writes: converted, they are what `go tool pprof` makes of the same file."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from support import cli, pprof
from support.gotool import go_pprof
from support.targets import ROOT


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CPU profile of tests/targets/burns.c."""
    directory = tmp_path_factory.mktemp("gperftools")
    source = ROOT / "tests" / "targets" / "burns.c"
    command = ["gcc", "-g", "-O1", "-fno-omit-frame-pointer", str(source), "-o", str(directory / "burns")]
    built = subprocess.run([*command, "-Wl,--no-as-needed", "-lprofiler"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, f"libgoogle-perftools-dev is needed (scripts/test installs it)\n{built.stderr}"
    path = directory / "cpu.prof"
    environment = {**os.environ, "CPUPROFILE": str(path), "CPUPROFILE_FREQUENCY": "500"}
    subprocess.run([directory / "burns"], check=True, env=environment, capture_output=True)
    return path


@pytest.fixture(scope="module")
def converted(recorded: Path) -> Path:
    """The same as pprof."""
    path = recorded.with_name("cpu.pb.gz")
    result = cli.remoteprof("convert", recorded, "-o", path)
    assert (result.status, result.stdout, result.stderr) == (0, "", "")
    return path


def added_up(raw: str) -> list[str]:
    """What -raw prints, samples of equal stacks as one: gperftools writes a stack out when another takes its place in a
    table, and later once more; pprof leaves that as it is."""
    lines: list[str] = []
    places: dict[str, int] = {}
    for line in raw.splitlines():
        sample = re.fullmatch(r" +(\d+) +(\d+): ([\d ]+)", line)
        if sample is None:
            lines.append(line)
            continue
        count, cpu = int(sample[1]), int(sample[2])
        if sample[3] in places:
            place = places[sample[3]]
            before = lines[place].split()
            count, cpu = count + int(before[0]), cpu + int(before[1].rstrip(":"))
        else:
            place = places[sample[3]] = len(lines)
            lines.append("")
        lines[place] = f"{count} {cpu}: {sample[3]}"
    return lines


def without_build_ids(raw: str) -> str:
    return re.sub(r"(?m)^(\d+: 0x\S+ \S+) [0-9a-f]* ?$", r"\1", raw)


def test_it_is_what_pprof_makes_of_it(recorded: Path, converted: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.pb.gz"
    go_pprof("-proto", f"-output={theirs}", "-symbolize=none", recorded)
    plain = tmp_path / "plain.pb.gz"
    assert cli.remoteprof("convert", recorded, "-o", plain, "--no-symbols").status == 0
    ours = without_build_ids(go_pprof("-raw", "-symbolize=none", plain))
    assert "cpu/nanoseconds" in ours and "libprofiler" in ours
    assert added_up(ours) == added_up(without_build_ids(go_pprof("-raw", "-symbolize=none", theirs)))
    assert len(added_up(ours)) == len(ours.splitlines()), "ours is added up"


def test_its_addresses_are_those_of_the_functions(recorded: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.pb.gz"
    assert cli.remoteprof("convert", recorded, "-o", plain, "--no-symbols").status == 0
    check_shares(go_pprof("-top", "-cum", plain))


def test_the_files_at_hand_give_names(converted: Path) -> None:
    # pprof finds none itself: what it shows was in the profile.
    check_shares(go_pprof("-top", "-cum", "-symbolize=none", converted))
    assert "burns.c" in go_pprof("-raw", "-symbolize=none", converted)


def test_an_unsymbolized_profile_gets_names_too(recorded: Path, converted: Path, tmp_path: Path) -> None:
    plain, named = tmp_path / "plain.pb.gz", tmp_path / "named.pb.gz"
    cli.remoteprof("convert", recorded, "-o", plain, "--no-symbols")
    assert not pprof.load(plain).message.function
    assert cli.remoteprof("convert", plain, "-o", named).status == 0
    expected = go_pprof("-raw", "-symbolize=none", converted)
    assert go_pprof("-raw", "-symbolize=none", named) == expected
    # And once it has names nothing is added.
    again = tmp_path / "again.pb.gz"
    assert cli.remoteprof("convert", named, "-o", again).status == 0
    assert again.read_bytes() == named.read_bytes()


def test_another_build_lends_no_names(recorded: Path, tmp_path: Path) -> None:
    plain, named = tmp_path / "plain.pb.gz", tmp_path / "named.pb.gz"
    cli.remoteprof("convert", recorded, "-o", plain, "--no-symbols")
    program = recorded.with_name("burns")
    saved = program.with_name("saved")
    program.rename(saved)
    try:
        source = ROOT / "tests" / "targets" / "burns.c"
        subprocess.run(["gcc", "-g", "-O2", str(source), "-o", str(program), "-lprofiler"], check=True)
        assert cli.remoteprof("convert", plain, "-o", named).status == 0
        assert not {"main", "middle", "leaf"} & pprof.load(named).functions()
        program.unlink()
        os.mkfifo(program)
        assert cli.remoteprof("convert", plain, "-o", named).status == 0
        assert not {"main", "middle", "leaf"} & pprof.load(named).functions()
    finally:
        saved.replace(program)


def check_shares(top: str) -> None:
    shares = {line.split()[-1]: float(line.split()[4].rstrip("%")) for line in top.splitlines()[5:]}
    assert shares["main"] > 95
    assert shares["middle"] >= shares["leaf"] > 10
    assert shares["other"] > 10


def test_what_stands_in_it(converted: Path) -> None:
    profile = pprof.load(converted)
    assert profile.types == [("samples", "count"), ("cpu", "nanoseconds")]
    assert profile.period == 2_000_000
    assert profile.period_type == ("cpu", "nanoseconds")
    assert profile.total("samples") > 20
    assert profile.total("cpu") == profile.total("samples") * profile.period
    assert profile.time_ns == 0
    assert profile.mappings[0].endswith("/burns")
    build_id = profile.message.string_table[profile.message.mapping[0].build_id].decode()
    notes = subprocess.run(["readelf", "-n", profile.mappings[0]], capture_output=True, text=True, check=True).stdout
    assert build_id and build_id in notes


def test_a_changed_file_lends_no_build_id(recorded: Path, tmp_path: Path) -> None:
    program = recorded.with_name("burns")
    saved = program.with_name("saved")
    program.rename(saved)
    try:
        program.write_bytes(saved.read_bytes())  # a namesake, though it has the same content
        result = cli.remoteprof("convert", recorded, "-o", tmp_path / "x.pb")
        assert result.status == 0, result.stderr
        message = pprof.load(tmp_path / "x.pb").message
        assert message.string_table[message.mapping[0].build_id] == b""
    finally:
        saved.replace(program)
