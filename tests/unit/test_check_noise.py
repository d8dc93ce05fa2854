"""The statistics of the gate, against numbers that others found, and against made-up recordings."""

import math
import random

import pytest

from remoteprof.profile.check_noise import GRID, Shares, compare
from remoteprof.profile.check_tails import beta, binomial, normal

TRIALS = 60


@pytest.mark.parametrize(
    "x, a, b, expected",
    [
        (0.5, 2, 3, 0.6875),  # polynomials
        (0.25, 1, 3, 1 - 0.75**3),
        (0.9, 4, 1, 0.9**4),
        (0.5, 0.5, 0.5, 0.5),  # (2/π) asin √x
        (0.2, 0.5, 0.5, 2 / math.pi * math.asin(math.sqrt(0.2))),
        (0.0, 2, 2, 0),
        (1.0, 2, 2, 1),
    ],
)
def test_beta(x, a, b, expected):
    assert beta(x, a, b) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("trials, chance", [(1, 0.5), (20, 0.1), (60, 0.5), (200, 0.97)])
def test_binomial_is_the_sum_of_its_terms(trials, chance):
    for least in range(trials + 2):
        terms = (math.comb(trials, n) * chance**n * (1 - chance) ** (trials - n) for n in range(least, trials + 1))
        assert binomial(least, trials, chance) == pytest.approx(math.fsum(terms), rel=1e-9, abs=1e-12)


def test_halves_do_not_turn_around_for_ever():
    for n in (1e-9, 0.1, 0.3, 1, 7.7, 1e6):
        assert beta(0.5, n, n) == pytest.approx(0.5, rel=1e-6)


def test_normal():
    assert normal(0) == 0.5
    assert normal(1.959963984540054) == pytest.approx(0.025)
    assert normal(-1.6448536269514722) == pytest.approx(0.95)


class Made:
    """Recordings of functions of known shares, whose variance is a multiple of that of independent samples."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def recording(self, shares, samples, dispersions):
        total = sum(shares)
        return [
            min(max(self.random.gauss(one / total, math.sqrt(one / total * (1 - one / total) / samples * of)), 0), 1)
            for one, of in zip(shares, dispersions, strict=True)
        ]

    def alarms(self, base, new, dispersions, bases=5, samples=10_000):
        before = [self.recording(base, samples, dispersions) for _ in range(bases)]
        after = self.recording(new, samples, dispersions)
        shares = [Shares(tuple(one[n] for one in before), after[n]) for n in range(len(base))]
        tests, _ = compare(shares, [samples] * bases, samples, 0.01)
        assert sum(test.alarm for test in tests) == pytest.approx(0.01)
        return {n for n, test in enumerate(tests) if test.chance <= test.alarm}


def mixed(made, count):
    """A tenth of the functions is far less steady than the rest."""
    return [6 if made.random.random() < 0.1 else 1.1 for _ in range(count)]


@pytest.mark.parametrize("bases", [2, 5])
@pytest.mark.parametrize("kind", ["alike", "loud", "mixed"])
def test_alarms_without_a_change_are_rare(bases, kind):
    made = Made(bases)
    found = 0
    for _ in range(TRIALS):
        dispersions = {"alike": [1.1] * 30, "loud": [9] * 30, "mixed": mixed(made, 30)}[kind]
        found += bool(made.alarms([1] * 30, [1] * 30, dispersions, bases))
    # At 2 %, more than 5 of 60 would come once in 500; the seeds are fixed.
    assert found <= 5


def test_growth_is_found():
    made = Made(1)
    equal, one_in_thirty = [1] * 30, [1.4] + [1] * 29
    fifth, grown = [5] + [1] * 20, [5.75] + [1] * 20
    found = [0 in made.alarms(equal, one_in_thirty, [1.08] * 30) for _ in range(TRIALS)]
    assert sum(found) >= 0.9 * TRIALS
    found = [0 in made.alarms(fifth, grown, [1.08] * 21) for _ in range(TRIALS)]
    assert sum(found) >= 0.88 * TRIALS


def test_what_shrank_is_no_alarm():
    assert Made(2).alarms([5, 1, 1, 1], [1, 1, 1, 1], [1] * 4) == {1, 2, 3}  # their shares did grow
    assert 0 not in Made(2).alarms([5, 1], [1, 1], [1] * 2)


def test_a_new_function_needs_some_samples():
    def alarm(count):
        shares = [Shares((0.5, 0.5), 0.5), Shares((0.0, 0.0), count / 1000)]
        return [test.chance <= test.alarm for test in compare(shares, [1000, 1000], 1000, 0.01)[0]]

    assert alarm(3) == [False, False]
    assert alarm(60) == [False, True]


def test_the_noise_is_told():
    made = Made(3)
    before = [made.recording([1] * 40, 10_000, [4] * 40) for _ in range(5)]
    shares = [Shares(tuple(one[n] for one in before), before[0][n]) for n in range(40)]
    assert 2.5 < compare(shares, [10_000] * 5, 10_000, 0.01)[1] < 6
    assert compare([], [1], 1, 0.01) == ([], 1.0)
    assert GRID[0] == 1
