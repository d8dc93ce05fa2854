"""The gate, over profiles that are written down."""

import json
import random

import pytest
from click.testing import CliRunner
from profiles import simple

from remoteprof.cli import cli
from remoteprof.cli.check_report import as_markdown
from remoteprof.errors import UsageError
from remoteprof.profile import Function, Line, Location, Sample
from remoteprof.profile.check import Budget, Limit, check, names_of
from remoteprof.profile.check_shares import Code, observe

EVEN = {f"{name} main": 1000 for name in "abcdefgh"}


def bases(count=5):
    """Recordings that differ a little."""
    found = []
    for number in range(count):
        stacks = {key: 1000 + (17 * number + 31 * place) % 40 - 20 for place, key in enumerate(EVEN)}
        found.append(simple(stacks, build_id=f"b{number}"))
    return found


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs `check` in an empty directory: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    for number, base in enumerate(bases()):
        base.save(tmp_path / f"base-{number}.pb.gz")
    simple(EVEN, build_id="new").save(tmp_path / "same.pb.gz")
    simple({**EVEN, "c main": 1500, "evil|<b>`x` main": 900}).save(tmp_path / "worse.pb.gz")

    def run(*arguments):
        result = CliRunner().invoke(cli, ["check", *map(str, arguments)])
        return result.exit_code, result.stdout, result.stderr

    return run


def test_nothing_changed():
    verdict = check(simple(EVEN, build_id="other"), bases())
    assert verdict.passed and verdict.failures == 0
    assert verdict.growths == [] and verdict.bases == 5
    # Seven different shares (two functions are always equal), and `main` that is in all stacks.
    assert verdict.compared == 9


def test_a_function_that_grew_is_named_with_its_line():
    verdict = check(simple({**EVEN, "c main": 1500}), bases())
    (grown,) = verdict.growths
    assert (grown.code.name, grown.code.place, grown.cumulative) == ("c", "c.c", False)
    assert grown.now == 1500 / 8500
    assert grown.growth == pytest.approx(1500 / 8500 * 8 - 1, rel=0.05)
    assert [line.line for line in grown.lines] == [2]
    assert not verdict.passed


def test_allowed_growth():
    new = simple({**EVEN, "c main": 1500})
    assert check(new, bases(), max_growth=0.5).passed
    assert not check(new, bases(), max_growth=0.2).passed


def test_a_function_that_was_not_there():
    verdict = check(simple({**EVEN, "z main": 700}), bases())
    assert [one.code.name for one in verdict.growths] == ["z"]
    assert verdict.growths[0].before == 0


def test_growth_of_a_caller_that_is_spread_over_many_callees():
    callees = {f"{one} {two} main": 1000 for one in "abcdefghijklmnopqrst" for two in "XY"}
    before = [
        simple({key: value + (13 * n + 7 * m) % 21 for m, (key, value) in enumerate(callees.items())}) for n in range(5)
    ]
    now = simple({key: value * 1.08 if " X " in key else value for key, value in callees.items()} | {})
    for sample in now.samples:
        sample.values = [round(value) for value in sample.values]
    assert {one.code.name for one in check(now, before, max_growth=0.03).growths} == {"X"}


def test_a_loud_function_is_not_a_regression():
    loud = [simple({**EVEN, "c main": value}) for value in (600, 1500, 900, 1900, 1100)]
    assert check(simple({**EVEN, "c main": 1600}), loud).passed
    assert not check(simple({**EVEN, "d main": 1600}), loud).passed


def test_one_base_is_told_of_and_finds_only_much():
    one = bases(1)
    assert check(simple({**EVEN, "c main": 1080}), one).passed
    verdict = check(simple({**EVEN, "c main": 3000}), one)
    assert [grown.code.name for grown in verdict.growths] == ["c"]
    assert "one base profile shows no noise" in verdict.notes[0]


def test_one_base_at_a_high_rate_counts_blocks_not_ticks():
    def fast(count):
        return simple({**EVEN, "c main": count}, period=100_000)

    # 1000 ticks of 0.1 ms are no more than ten places that the program was in for 10 ms.
    assert check(fast(1500), [fast(1000)]).passed
    assert check(fast(1500), [fast(1000)]).samples == pytest.approx(85)


def test_what_tells_of_the_recording_is_not_compared():
    verdict = check(simple({**EVEN, "[unsampled]": 4000}), bases())
    assert verdict.growths == []


@pytest.mark.parametrize(
    "pattern, most, kept", [("a|b", 0.3, True), ("a|b", 0.2, False), ("[ab]", 0.26, True), ("main", 0.99, False)]
)
def test_limits(pattern, most, kept):
    verdict = check(simple(EVEN), limits=[Limit(pattern, share=most)])
    assert verdict.passed is kept
    (result,) = verdict.limits
    assert result.share == (1 if pattern == "main" else 0.25)


def test_a_limit_of_time_and_one_that_matches_nothing():
    assert check(simple(EVEN), limits=[Limit("a", value=10**10)]).passed
    assert not check(simple(EVEN), limits=[Limit("a", value=10**10 - 1)]).passed
    verdict = check(simple(EVEN), limits=[Limit("mai", share=0.0)])
    assert verdict.passed and verdict.notes == ["no function matches 'mai'"]
    with pytest.raises(UsageError, match="not a regular expression"):
        check(simple(EVEN), limits=[Limit("(", share=0.0)])


def test_unnamed_code_has_a_limit_too():
    made = simple({". main": 3, "a main": 1})
    assert check(made, limits=[Limit(r"\[app\]", share=0.75)]).limits[0].share == 0.75


@pytest.mark.parametrize(
    "file, name, matched",
    [
        ("/usr/lib/python3.12/json/encoder.py", "JSONEncoder.encode", "json.encoder.JSONEncoder.encode"),
        ("/v/lib/python3.11/site-packages/yaml/__init__.py", "load", "yaml.load"),
        ("/srv/app/json.py", "f", "app.json.f"),
        ("/srv/app/json.py", "f", "json.f"),
        ("/src/a.c", "f", "f"),
        ("/.py", "f", "f"),
    ],
)
def test_dotted_names(file, name, matched):
    assert matched in names_of(Function(name, name, file))


def test_a_recursive_function_counts_once():
    place = Location([Line(Function("f", "f", "f.py"), 3)])
    made = simple({})
    made.samples = [Sample((place, place), [1, 100])]
    assert check(made, limits=[Limit("f", value=100)]).limits[0].value == 100


def test_budgets():
    assert check(simple(EVEN), budgets=[Budget("cpu", 80 * 10**9)]).passed
    verdict = check(simple(EVEN), budgets=[Budget("cpu", 79 * 10**9), Budget("samples", 8000)])
    assert [one.kept for one in verdict.budgets] == [False, True]
    with pytest.raises(UsageError, match="no sample type 'gil'"):
        check(simple(EVEN), budgets=[Budget("gil", 1)])


def test_what_cannot_be_compared():
    empty = simple({})
    with pytest.raises(UsageError, match="no cpu to compare"):
        check(empty, bases())
    with pytest.raises(UsageError, match="a base profile has no cpu to compare"):
        check(simple(EVEN), [empty])
    other = simple(EVEN)
    other.sample_types = other.sample_types[:1]
    with pytest.raises(UsageError, match="no cpu/nanoseconds"):
        check(simple(EVEN), [other])


def test_command_passes(run):
    code, out, err = run("same.pb.gz", "--against", "base-*.pb.gz", "--max", "a=20%", "--budget", "cpu=2m")
    assert (code, err) == (0, "check passed\n")
    assert "5 base profiles" in out and "ok no functions grew" in out


def test_command_fails_with_names_lines_and_a_summary(run, tmp_path, monkeypatch):
    (tmp_path / "summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    code, out, err = run("worse.pb.gz", "--against", "base-*.pb.gz")
    assert code == 6
    assert err.startswith("error: check failed: 2 of what was asked for does not hold\nhint: see what changed: ")
    assert "c (c.c)" in out and "line 2: " in out
    text = (tmp_path / "summary.md").read_text()
    assert text.startswith("before\n### remoteprof check: failed")
    assert "<code>c</code>" in text and "evil&#124;&#60;b&#62;&#96;x&#96;" in text
    assert "<b>" not in text


def test_command_as_json(run, tmp_path):
    code, out, _ = run(
        "worse.pb.gz", "--against", "base-0.pb.gz", "--against", "base-[1-4]*", "--json", "--summary", "s"
    )
    told = json.loads(out)
    assert code == 6 and told["passed"] is False
    assert len(told["against"]) == 5
    assert [one["function"] for one in told["regressions"]] == ["evil|<b>`x`", "c"]
    assert [one["growth"] is None for one in told["regressions"]] == [True, False]
    assert all(one["chance"] <= one["alarm"] for one in told["regressions"])
    assert (tmp_path / "s").exists()


@pytest.mark.parametrize(
    "arguments, code, problem",
    [
        (["same.pb.gz"], 2, "nothing to check"),
        (["same.pb.gz", "--against", "none-*"], 2, "no base profile matches 'none-*'"),
        (["same.pb.gz", "--against", "none"], 1, "cannot read none"),
        (["none", "--budget", "cpu=1s"], 1, "cannot read none"),
        (["same.pb.gz", "--max", "a"], 2, "not of the form REGEX=LIMIT"),
        (["same.pb.gz", "--max", "(=5%"], 2, "not a regular expression"),
        (["same.pb.gz", "--max", "a=x"], 2, "neither a share"),
        (["same.pb.gz", "--budget", "cpu"], 2, "not of the form TYPE=VALUE"),
        (["same.pb.gz", "--budget", "cpu=x"], 2, "not a duration"),
        (["same.pb.gz", "--against", "base-0.pb.gz", "--max-regression", "x"], 2, "not a share"),
        (["same.pb.gz", "--against", "base-0.pb.gz", "--false-alarms", "0"], 2, "above 0"),
        (["same.pb.gz", "--budget", "cpu=1h", "--summary", "none/x"], 1, "cannot write none/x"),
    ],
)
def test_wrong_use(run, arguments, code, problem):
    exit_code, out, err = run(*arguments)
    assert (exit_code, out) == (code, "")
    assert problem in err and err.startswith("error: ")


def test_a_profile_is_not_compared_with_itself(run):
    _, out, err = run("worse.pb.gz", "--against", "*.pb.gz", "--json")
    told = json.loads(out)
    assert "worse.pb.gz" not in told["against"] and len(told["against"]) == 6
    assert err.startswith("note: the profile itself is left out")
    assert run("same.pb.gz", "--against", "same.pb.gz")[0] == 2


def test_a_difference_is_no_recording(run, tmp_path):
    simple({**EVEN, "a main": -5}).save(tmp_path / "odd.pb.gz")
    code, _, err = run("odd.pb.gz", "--against", "same.pb.gz")
    assert code == 1 and "below zero" in err
    with pytest.raises(UsageError, match="this is a difference"):
        check(simple({**EVEN, "a main": -5}), bases())


def test_a_pause_of_the_sampler_outweighs_nothing():
    new = simple(EVEN)
    (late,) = (sample for sample in new.samples if sample.locations[0].lines[0].function.name == "c")
    late.values[1] += 10**10  # all the CPU time of a second without a core, on one sample
    assert new.total("cpu") == 9 * 10**10
    verdict = check(new, bases())
    assert verdict.total == 9 * 10**10
    assert verdict.samples < 8000


def test_what_jittered_ticks_make_of_values_is_no_noise():
    draw = random.Random(1)
    new = simple(EVEN)
    for sample in new.samples:
        sample.values[1] = sum(round(draw.uniform(0.5, 1.5) * 10**7) for _ in range(1000))
    seen = observe(new)
    assert seen.samples == pytest.approx(8000)
    assert {round(8 * value / seen.counted, 6) for value in seen.flat.values()} == {1.0}
    # A function that works for a part of the time between two ticks has less, and that is counted.
    new.samples[2].values[1] = round(0.8 * new.samples[2].values[1])
    seen = observe(new)
    assert seen.samples < 7000
    assert seen.flat[Code("c", "c.c")] / seen.counted == pytest.approx(0.8 / 7.8, rel=0.05)


def test_markdown_of_many_is_cut():
    many = {f"f{number} main": 1 for number in range(10)}
    verdict = check(
        simple({**many, **{f"g{n} main": 500 for n in range(60)}}), [simple({**many, "f0 main": 40000})] * 3
    )
    text = as_markdown(verdict, "x")
    assert len(verdict.growths) > 55
    assert f"… and {len(verdict.growths) - 50} more functions" in text
