"""Commands over profiles that were recorded before."""

import struct

import pytest
from click.testing import CliRunner
from profiles import simple

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


@pytest.fixture
def two(tmp_path):
    simple({"a main": 60, "b main": 40}).save(tmp_path / "base.pb.gz")
    simple({"a main": 90, "b\x1b[31m main": 40}).save(tmp_path / "new.pb.gz")


def test_merge(run, two):
    assert run("merge", "base.pb.gz", "new.pb.gz", "base.pb.gz", "-o", "sum.pb.gz") == (0, "", "")
    assert Profile.load("sum.pb.gz").total("samples") == 330


def test_merge_says_which_one_is_unlike(run, two, tmp_path):
    simple({}, period=5).save(tmp_path / "odd.pb")
    code, out, err = run("merge", "base.pb.gz", "odd.pb", "-o", "sum.pb.gz")
    assert (code, out) == (2, "")
    assert err.startswith("error: odd.pb: different periods: 10000000 and 5 nanoseconds\nhint: ")
    assert not (tmp_path / "sum.pb.gz").exists()


def test_diff(run, two):
    code, out, err = run("diff", "base.pb.gz", "new.pb.gz")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert out.startswith("cpu: 1.00 s → 1.30 s (+300 ms, +30.0 %)\n")
    assert lines[2] == "-400 ms -40.0 % 40.0 → 0.0 % -400 ms -40.0 % 40.0 → 0.0 % b (b.c)"
    assert lines[4] == "+300 ms +30.0 % 60.0 → 69.2 % +300 ms +30.0 % 60.0 → 69.2 % a (a.c)"
    assert "b\\x1b[31m" in out and "\x1b" not in out
    assert len(lines) == 6
    assert lines[5] == "0 ns +0.0 % 0.0 → 0.0 % +300 ms +30.0 % 100.0 → 100.0 % main (main.c)"


def test_diff_options(run, two):
    assert len(run("diff", "base.pb.gz", "new.pb.gz", "-n", "1")[1].splitlines()) == 4
    assert "… and 3 more functions" in run("diff", "base.pb.gz", "new.pb.gz", "-n", "1")[1]
    assert run("diff", "base.pb.gz", "new.pb.gz", "-t", "samples")[1].startswith("samples: 100 → 130 (+30, +30.0 %)")
    by_cumulative = run("diff", "base.pb.gz", "new.pb.gz", "--cum", "-n", "1")[1]
    assert by_cumulative.splitlines()[2].endswith("b (b.c)")
    code, out, err = run("diff", "base.pb.gz", "new.pb.gz", "--normalize")
    assert (code, err) == (0, "note: normalized: values of the base profile count 1.3 times\n")
    assert out.startswith("cpu: 1.30 s → 1.30 s (0 ns, +0.0 %)")


def test_nothing_changed(run, two):
    assert run("diff", "base.pb.gz", "base.pb.gz") == (
        0,
        "cpu: 1.00 s → 1.00 s (0 ns, +0.0 %)\nno function changed\n",
        "",
    )


def test_diff_as_a_profile(run, two, tmp_path):
    assert run("diff", "base.pb.gz", "new.pb.gz", "-o", "diff.pb.gz") == (0, "", "")
    made = Profile.load("diff.pb.gz")
    assert made.total("samples") == 30
    assert run("diff", "base.pb.gz", "new.pb.gz", "-o", "-")[0] == 0


def test_diff_as_a_flame_graph(run, two, tmp_path):
    assert run("diff", "base.pb.gz", "new.pb.gz", "-o", "diff.svg") == (0, "", "")
    image = (tmp_path / "diff.svg").read_text()
    assert "a (300000000 nanoseconds" in image and "b (-400000000 nanoseconds" in image
    assert "hsl(4," in image and "hsl(214," in image
    assert run("diff", "base.pb.gz", "new.pb.gz", "-o", "diff.html") == (0, "", "")
    assert (tmp_path / "diff.html").read_bytes().startswith(b"<!DOCTYPE html>")
    assert run("diff", "base.pb.gz", "new.pb.gz", "-o", "diff.folded") == (0, "", "")
    folded = (tmp_path / "diff.folded").read_text()
    assert folded == "main;a 300000000\nmain;b -400000000\nmain;b\\x1b[31m 400000000\n"


def test_what_no_difference_can_be_written_as(run, two, tmp_path):
    code, out, err = run("diff", "base.pb.gz", "new.pb.gz", "-o", "diff.speedscope.json")
    assert (code, out) == (1, "")
    assert "speedscope cannot show negative values" in err and ".html" in err
    assert not (tmp_path / "diff.speedscope.json").exists()


def test_a_profile_from_stdin(two, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = (tmp_path / "base.pb.gz").read_bytes()
    result = CliRunner().invoke(cli, ["convert", "-", "-o", "x.pb"], input=content)
    assert (result.exit_code, result.stderr) == (0, "")
    assert Profile.load("x.pb") == Profile.load("base.pb.gz")
    result = CliRunner().invoke(cli, ["convert", "-", "-o", "x.pb"], input=b"x")
    assert result.stderr.startswith("error: stdin: not a pprof profile")


def test_values_below_zero_are_asked_for(run, two, tmp_path):
    simple({"a": -1}).save(tmp_path / "less.pb")
    code, _, err = run("convert", "less.pb", "-o", "x.pb")
    assert code == 1 and "below zero" in err and "--signed" in err
    assert run("convert", "less.pb", "-o", "x.pb", "--signed") == (0, "", "")
    assert run("merge", "less.pb", "base.pb.gz", "-o", "x.pb", "--signed") == (0, "", "")


@pytest.mark.parametrize(
    "arguments, code, problem",
    [
        (["merge", "-o", "x"], 2, "Missing argument 'IN...'"),
        (["merge", "base.pb.gz"], 2, "Missing option '-o'"),
        (["merge", "base.pb.gz", "none", "-o", "x"], 1, "cannot read none"),
        (["diff", "base.pb.gz"], 2, "Missing argument 'NEW'"),
        (["diff", "base.pb.gz", "new.pb.gz", "-t", "gil"], 2, "no sample type 'gil'"),
        (["diff", "base.pb.gz", "new.pb.gz", "-n", "0"], 2, "0 is not in the range"),
        (["diff", "base.pb.gz", "none"], 1, "cannot read none"),
        (["diff", "base.pb.gz", "new.pb.gz", "-o", "none/x"], 1, "cannot write none/x"),
    ],
)
def test_what_cannot_be_compared(run, two, arguments, code, problem):
    exit_code, out, err = run(*arguments)
    assert (exit_code, out) == (code, "")
    assert problem in err and err.startswith("error: ")
