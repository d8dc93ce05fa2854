"""Commands over profiles that were recorded before."""

import struct

import pytest
from click.testing import CliRunner

from remoteprof.cli import cli
from remoteprof.profile import Profile

WORDS = [0, 3, 0, 2000, 0, 20, 2, 0x400000, 0x400002, 0, 1, 0]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command in an empty directory: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        return result.exit_code, result.stdout, result.stderr

    return run


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "cpu.prof"
    path.write_bytes(struct.pack(f"<{len(WORDS)}Q", *WORDS))
    return path


@pytest.mark.parametrize(
    "given, expected",
    [
        ("1717156800", 1_717_156_800_000_000_000),
        ("1717156800.5", 1_717_156_800_500_000_000),
        ("2024-05-31T12:00:00Z", 1_717_156_800_000_000_000),
        ("2024-05-31T14:00:00+02:00", 1_717_156_800_000_000_000),
    ],
)
def test_convert_an_old_profile(run, old, given, expected):
    code, out, err = run("convert", old, "-o", "x.pb.gz", "--time", given)
    assert (code, out) == (0, "")
    assert err == f"warning: {old}: the profile has no usable memory map: addresses have no module\n"
    profile = Profile.load("x.pb.gz")
    assert profile.time_ns == expected
    assert profile.total("cpu") == 40_000_000
    assert profile.comments == ["the profile has no usable memory map: addresses have no module"]


def test_convert_without_a_time_has_none(run, old):
    assert run("convert", old, "-o", "x.pb")[0] == 0
    assert Profile.load("x.pb").time_ns == 0


def test_convert_again_changes_nothing(run, old, tmp_path):
    run("convert", old, "-o", "x.pb.gz")
    assert run("convert", "x.pb.gz", "-o", "y.pb.gz") == (0, "", "")
    assert (tmp_path / "x.pb.gz").read_bytes() == (tmp_path / "y.pb.gz").read_bytes()


@pytest.mark.parametrize(
    "arguments, code, problem",
    [
        (["cpu.prof"], 2, "Missing option '-o'"),
        (["cpu.prof", "-o", "x", "-f", "xml"], 2, "unknown format 'xml'"),
        (["cpu.prof", "-o", "x", "--time", "soon"], 2, "'soon' is not a time"),
        (["cpu.prof", "-o", "x", "--time", "-1"], 2, "'-1' is not a time"),
        (["cpu.prof", "-o", "x", "--time", "nan"], 2, "'nan' is not a time"),
        (["none", "-o", "x"], 1, "cannot read none: No such file"),
        (["bad", "-o", "x"], 1, "bad: not a pprof profile"),
        (["empty", "-o", "x"], 1, "empty: empty: not a pprof profile"),
        ([".", "-o", "x"], 1, "cannot read .: Is a directory"),
        (["cpu.prof", "-o", "none/x"], 1, "cannot write none/x"),
    ],
)
def test_what_cannot_be_converted(run, old, tmp_path, arguments, code, problem):
    (tmp_path / "bad").write_bytes(b"bad")
    (tmp_path / "empty").write_bytes(b"")
    exit_code, out, err = run("convert", *arguments)
    assert (exit_code, out) == (code, "")
    assert problem in err and err.startswith("error: ")
    assert not (tmp_path / "x").exists()
