"""Tail probabilities of the distributions that the gate's tests need, by math alone."""

from __future__ import annotations

import math

_STEPS = 500
_SMALL = 1e-300


def normal(value: float) -> float:
    """P(Z > value) of the standard normal distribution."""
    return 0.5 * math.erfc(value / math.sqrt(2))


def binomial(least: float, trials: float, chance: float) -> float:
    """P(X >= least) of `trials` trials; both may be broken numbers, as effective counts are."""
    if least <= 0:
        return 1.0
    if least > trials:
        return 0.0
    return beta(chance, least, trials - least + 1)


def beta(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22), evaluated from the
    front (modified Lentz)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    # Beyond, the fraction would converge slowly; DLMF 8.17.4 turns it around.
    return _fraction(x, a, b) if x <= (a + 1) / (a + b + 2) else 1 - _fraction(1 - x, b, a)


def _fraction(x: float, a: float, b: float) -> float:
    front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    total = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            total *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return math.exp(front) * total / a


def _away(value: float) -> float:
    """Kept away from 0, by which the fraction divides."""
    return value if abs(value) > _SMALL else _SMALL
