"""How much shares differ between recordings of the same program, and which differences are more than that.

A share is compared on the scale 2·asin(√share), where the variance of counted samples is 1/n whatever the share. What
recordings really have is a multiple of it, the dispersion: ticks of one thread that follow each other are correlated,
machines are loaded, and programs do not do the same twice. Several bases show it. Few bases show a function's own
dispersion badly, but all functions together show which dispersions there are: their distribution is estimated over a
grid (maximum likelihood by expectation maximization, N. Laird 1978, with a prior that keeps large ones possible), and a
function's chance is the mean over the grid, weighted by what its own bases say (empirical Bayes).

One base shows nothing of that. There n is taken to be as small as if the program stayed in one place for BLOCK_NS, and
the dispersion from the differences to the new recording, as most functions have not changed.

Every test has a part of the false-alarm rate, proportional to (p(1-p))^1.5 for the share p of all recordings
together, so that much CPU time is watched more closely than little: there growth shows, and many small functions lose
nothing by it. The sum of the parts is the rate (Bonferroni), and holds however the functions depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from remoteprof.profile.check_tails import binomial, normal

BLOCK_NS = 10_000_000
"""With one base: CPU time of a thread that counts as one sample, however often it was looked at."""
ENOUGH = 10.0
"""Samples in all bases together from which on a function helps to learn the noise."""
GRID = tuple(1.15 ** min(step, 7) * 1.4 ** max(step - 7, 0) for step in range(32))
"""Dispersions that a function may have, up to some 10,000. None is below that of independent samples: a function that
happened to be steady is not known to be."""
PART = 1.5
PRIOR = 1.0
"""How many functions the prior counts for; of a dispersion d it has a part proportional to 1/d²."""
ROUNDS = 60
_BINS = 8
"""Per unit of the logarithm: dispersions that are told apart while they are learned."""


class Shares(NamedTuple):
    """A function's shares (0 to 1) in the bases and in the new recording."""

    bases: tuple[float, ...]
    new: float


class Test(NamedTuple):
    """A comparison: the chance of a share as large as the new one if nothing changed; an alarm where it is at most
    `alarm`."""

    chance: float
    alarm: float


@dataclass(frozen=True, slots=True)
class Noise:
    """What is known of the dispersion of functions: a weight for each of GRID, which add up to 1. `own` is the number
    of bases less one, 0 = a function's own bases say nothing."""

    weights: tuple[float, ...]
    own: int

    def of(self, dispersion: float) -> list[float]:
        """The weights for a function whose own bases differ by `dispersion`."""
        found = [w * like for w, like in zip(self.weights, _likelihood(dispersion, self.own), strict=True)]
        whole = sum(found)
        return [one / whole for one in found]

    def typical(self) -> float:
        """The median."""
        below = 0.0
        for dispersion, weight in zip(GRID, self.weights, strict=True):
            below += weight
            if below >= 0.5:
                return dispersion
        return GRID[-1]


def compare(shares: Sequence[Shares], bases: Sequence[float], new: float, rate: float) -> tuple[list[Test], float]:
    """Tests each of `shares` for growth. bases, new: effective samples of the recordings, already as few as blocks of
    BLOCK_NS for a single base. rate: of false alarms, over all of `shares` together. Gives a test for each, and the
    typical dispersion."""
    if not shares:
        return [], 1.0
    all_bases, all_samples = sum(bases), sum(bases) + new
    pooled = [
        (sum(share * n for share, n in zip(one.bases, bases, strict=True)) + one.new * new) / all_samples
        for one in shares
    ]
    parts = [max(p * (1 - p), 0.0) ** PART for p in pooled]
    whole = sum(parts) or 1.0
    own = [_dispersion(one.bases, bases) for one in shares]
    counted = [one for one, p in zip(own, pooled, strict=True) if min(p, 1 - p) * all_bases >= ENOUGH]
    noise = _between(shares, pooled, bases[0], new) if len(bases) == 1 else _learn(counted, len(bases) - 1)
    # What differs between recordings does not become less in a longer one.
    comparable = min(new, all_bases / len(bases))
    tests = []
    for one, p, dispersion, part in zip(shares, pooled, own, parts, strict=True):
        if part == 0:
            tests.append(Test(1.0, 0.0))
            continue
        before = sum(_angle(share, n) * n for share, n in zip(one.bases, bases, strict=True)) / all_bases
        distance = _angle(one.new, new) - before
        if distance <= 0:
            tests.append(Test(1.0, rate * part / whole))
            continue
        weights = noise.of(dispersion)
        distance /= math.sqrt(1 / comparable + 1 / all_bases)
        chance = sum(w * normal(distance / math.sqrt(of)) for w, of in zip(weights, GRID, strict=True) if w > 1e-12)
        # The scale is not good for a handful of samples: there the exact test of two counts decides.
        spread = sum(w * of for w, of in zip(weights, GRID, strict=True))
        found, of = one.new * comparable / spread, (p * all_samples - one.new * (new - comparable)) / spread
        chance = max(chance, binomial(found, of, comparable / (comparable + all_bases)))
        tests.append(Test(chance, rate * part / whole))
    return tests, noise.typical()


def _angle(share: float, samples: float) -> float:
    """Anscombe's form, which is good for small counts too."""
    return 2 * math.asin(math.sqrt(min(max((share * samples + 0.375) / (samples + 0.75), 0.0), 1.0)))


def _dispersion(shares: Sequence[float], samples: Sequence[float]) -> float:
    """The variance between recordings, as a multiple of that of independent samples."""
    if len(shares) < 2:
        return 1.0
    angles = [_angle(share, n) for share, n in zip(shares, samples, strict=True)]
    mean = sum(angle * n for angle, n in zip(angles, samples, strict=True)) / sum(samples)
    return sum(n * (angle - mean) ** 2 for angle, n in zip(angles, samples, strict=True)) / (len(shares) - 1)


def _likelihood(dispersion: float, own: int) -> list[float]:
    """Of each of GRID, up to a factor: the bases of a function differ as χ² with `own` degrees of freedom."""
    logs = [-own / 2 * (math.log(of) + dispersion / of) for of in GRID]
    most = max(logs)
    return [math.exp(one - most) for one in logs]


def _learn(dispersions: Sequence[float], own: int) -> Noise:
    """From the dispersions of many functions."""
    counts: dict[int, int] = {}
    for one in dispersions:
        place = round(_BINS * math.log(max(one, 1e-3)))
        counts[place] = counts.get(place, 0) + 1
    likelihoods = [(count, _likelihood(math.exp(place / _BINS), own)) for place, count in counts.items()]
    whole = sum(one**-2 for one in GRID)
    prior = [PRIOR * one**-2 / whole for one in GRID]
    weights = [one / PRIOR for one in prior]
    for _ in range(ROUNDS):
        sums = list(prior)
        for count, likelihood in likelihoods:
            joint = [weight * like for weight, like in zip(weights, likelihood, strict=True)]
            factor = count / sum(joint)
            sums = [total + factor * one for total, one in zip(sums, joint, strict=True)]
        total = sum(sums)
        weights = [one / total for one in sums]
    return Noise(tuple(weights), own)


def _between(shares: Sequence[Shares], pooled: Sequence[float], base: float, new: float) -> Noise:
    """With one base. Medians are not moved by the functions that have changed."""
    counted = [one for one, p in zip(shares, pooled, strict=True) if one.new and min(p, 1 - p) * (base + new) >= ENOUGH]
    # Where one function has grown, the shares of all others have become smaller together: that is no noise.
    ratios = sorted(one.bases[0] / one.new for one in counted)
    scale = ratios[len(ratios) // 2] if ratios else 1.0
    squares = sorted(
        (_angle(one.new * scale, new) - _angle(one.bases[0], base)) ** 2 / (1 / new + 1 / base) for one in counted
    )
    # 0.4549 is the median of χ² with one degree of freedom.
    found = squares[len(squares) // 2] / 0.4549 if squares else 1.0
    place = next((number for number, one in enumerate(GRID) if one >= found), len(GRID) - 1)
    return Noise(tuple(float(number == place) for number in range(len(GRID))), 0)
