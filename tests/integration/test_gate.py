"""The gate over real recordings of a program whose shares are known: it is silent where nothing changed, and finds what
was planted.

The long form records 10 s at 1 kHz, which has 10,000 samples at most. In CI recordings are shorter, at a higher rate:
the functions run for some microseconds each and in random order, so that samples are as independent; but what disturbs
a machine for some milliseconds weighs more in them. On a busy machine both are as long as they must be to have as many
samples. Each recording is of a process of its own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from support import cli
from support.bounds import most
from support.targets import compiled, started

from remoteprof.profile.check import Verdict, check
from remoteprof.profile.check_shares import observe
from remoteprof.profile.model import Profile

WANTED = 9500
"""Effective samples of a recording."""
FIRST, RATE = (10.0, 1000) if cli.LONG else (1.2, 10_000)
"""Seconds and Hz: what a quiet machine needs for a recording."""
LONGEST = 300.0
"""Seconds after which a machine is too busy for this."""
BASES = 5
RECORDINGS = 100 if cli.LONG else 20
ALARM = 0.01
"""The gate's default rate of false alarms. Here a run may have as many as a gate that keeps it can have by chance; the
long form, of 200 pairs, may have 2 %."""

COMPARISONS = 6
"""Counts of what was found and of false alarms here."""
FOUND = 95 if cli.LONG else RECORDINGS - most(RECORDINGS, 0.05, COMPARISONS)
"""Of RECORDINGS in which growth must be found: what a gate that finds 95 % finds at least."""

EQUAL = (3000,)
ONE_OF_THIRTY = (3000, 3000, 3000, 4200, 3000)
"""work_03 does 40 % more."""
FIFTH = (21750, 3000)
"""work_00 has a fifth of the time: 21750 / (21750 + 29 · 3000)."""
LARGER_FIFTH = (25012, 3000)
"""work_00 does 15 % more."""

Recorded = Callable[[tuple[int, ...], int], list[Profile]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Gives the first recordings of a program, made when they are first asked for."""
    directory = tmp_path_factory.mktemp("gate")
    known: dict[tuple[int, ...], list[Profile]] = {}

    def recorded(units: tuple[int, ...], count: int) -> list[Profile]:
        found = known.setdefault(units, [])
        while len(found) < count:
            pieces: list[Profile] = []
            with started([compiled("native/shares.c"), *map(str, units)]) as target:
                passed, samples, length = 0.0, 0.0, FIRST
                while samples < WANTED:
                    assert passed < LONGEST, f"this machine gives too few samples: {samples:.0f} in {passed:.0f} s"
                    path = cli.attach(target.pid, directory, f"{length:.1f}s", RATE, "--no-idle").path
                    pieces.append(Profile.load(path))
                    whole = Profile.merge(*pieces)
                    passed, samples = passed + length, observe(whole).samples
                    # The rest, as far as can be told; never more than there is, which tells little of a busy machine.
                    length = max(min((WANTED / samples - 1) * passed, passed), 0.3)
            found.append(whole)
        return found[:count]

    return recorded


def named(verdict: Verdict) -> set[str]:
    return {grown.code.name for grown in verdict.growths}


@pytest.mark.parametrize(
    ("base", "new", "function"),
    ((EQUAL, ONE_OF_THIRTY, "work_03"), (FIFTH, LARGER_FIFTH, "work_00")),
    ids=("40 % of one in thirty", "15 % of a fifth"),
)
def test_planted_growth_is_found(
    recorded: Recorded, base: tuple[int, ...], new: tuple[int, ...], function: str
) -> None:
    bases = recorded(base, BASES)
    found, others = 0, []
    for profile in recorded(new, RECORDINGS):
        verdict = check(profile, bases)
        found += function in named(verdict)
        others += sorted(named(verdict) - {function})
    print(f"{found} of {RECORDINGS}; besides: {others}")
    assert found >= FOUND
    assert len(others) <= most(RECORDINGS, ALARM, COMPARISONS)


@pytest.mark.parametrize("bases", (1, BASES))
def test_no_alarm_where_nothing_changed(recorded: Recorded, bases: int) -> None:
    draw = random.Random(bases)
    alarms = []
    for units in (ONE_OF_THIRTY, LARGER_FIFTH):
        profiles = recorded(units, RECORDINGS)
        for number, new in enumerate(profiles):
            before = draw.sample(profiles[:number] + profiles[number + 1 :], bases)
            alarms.append(sorted(named(check(new, before))))
    failed = [one for one in alarms if one]
    print(f"{bases} bases: {len(failed)} of {len(alarms)}: {failed}")
    assert len(failed) <= (len(alarms) // 50 if cli.LONG else most(len(alarms), ALARM, COMPARISONS))


def test_the_command(recorded: Recorded, tmp_path: Path) -> None:
    for number, profile in enumerate(recorded(EQUAL, BASES)):
        profile.save(tmp_path / f"base-{number}.pb.gz")
    new = tmp_path / "new.pb.gz"
    recorded(ONE_OF_THIRTY, 1)[0].save(new)
    against = ("--against", tmp_path / "base-*.pb.gz")
    done = cli.remoteprof("check", new, *against, "--json", "--summary", tmp_path / "summary.md")
    told = json.loads(done.stdout)
    assert told["comparisons"] >= 30 and len(told["against"]) == BASES
    assert cli.remoteprof("check", new, "--max", "work_03=10%", "--budget", "cpu=10h").status == 0
    failed = cli.remoteprof("check", new, "--max", "work_0.=30%")
    assert failed.status == 6
    assert "FAILED work_0.: 3" in failed.stdout
    grown = [one for one in told["regressions"] if one["function"] == "work_03"]
    # What did not grow may be among them too, at the rate of false alarms.
    assert done.status == (6 if told["regressions"] else 0)
    for one in grown:
        assert one["place"].endswith("shares.c") and one["lines"]
        # Its standard deviation is 0.076, of which this is four.
        assert 0.1 < one["growth"] < 0.7
    # One program has grown for certain: a function that the others do not have at all.
    other = tmp_path / "other.pb.gz"
    recorded(FIFTH, 1)[0].save(other)
    done = cli.remoteprof("check", other, *against)
    assert done.status == 6 and "work_00" in done.stdout and "line " in done.stdout
    assert "hint: see what changed: remoteprof diff" in done.stderr
