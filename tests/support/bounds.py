"""How far a measured share may lie from the true one."""

from __future__ import annotations

from collections.abc import Callable
from math import comb, inf, sqrt
from statistics import NormalDist

from support.pprof import Profile, Sample

CONFIDENCE = 0.999


def effective_samples(profile: Profile, value: str, records: int) -> float:
    """(Σw)² / Σw² over the samples' weights in the column `value`. Rows of a profile are sums over equal stacks, so
    the spread of single weights is estimated from the spread between rows (as in an analysis of variance)."""
    rows = [(sample.values["samples"], sample.values[value]) for sample in profile.samples if sample.values["samples"]]
    ticks = sum(count for count, _ in rows)
    total = sum(weight for _, weight in rows)
    if not ticks or not total:
        return 0.0
    mean = total / ticks
    between = sum(weight * weight / count for count, weight in rows) - total * total / ticks
    variance = between / (len(rows) - 1) if len(rows) > 1 else 0.0
    return records * mean * mean / (mean * mean + max(variance, 0.0))


def allowed_error(truth: float, samples: float, comparisons: int) -> float:
    """The two-sided bound that a right share keeps with CONFIDENCE over all `comparisons` of a run together."""
    if samples <= 0:
        return -inf
    z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / comparisons / 2)
    # Wilson's score interval, which also holds for small shares, and half a sample for the discreteness.
    half = z * sqrt(truth * (1 - truth) / samples + z * z / (4 * samples * samples)) / (1 + z * z / samples)
    shift = abs(truth - (truth + z * z / (2 * samples)) / (1 + z * z / samples))
    return half + shift + 0.5 / samples


def share_faults(
    profile: Profile, truth: dict[str, float], value: str, records: int, comparisons: int
) -> tuple[list[str], dict[str, float]]:
    """The functions whose share of the column `value` is out of bounds, as text; and all shares."""
    total = profile.total(value)
    samples = effective_samples(profile, value, records)
    shares = {name: profile.with_function(name, value) / total if total else 0.0 for name in truth}
    faults = []
    for name, true in truth.items():
        allowed = allowed_error(true, samples, comparisons)
        if abs(shares[name] - true) > allowed:
            faults.append(
                f"{name}: {shares[name]:.4f} of {value}, truth {true:.4f} ± {allowed:.4f} ({samples:.0f} samples)"
            )
    return faults, shares


def share(profile: Profile, value: str, chosen: Callable[[Sample], bool]) -> float:
    total = profile.total(value)
    return sum(sample.values[value] for sample in profile.samples if chosen(sample)) / total if total else 0.0


def most(trials: int, probability: float, comparisons: int = 1) -> int:
    """How often what happens with this probability happens in so many independent trials at most, with CONFIDENCE over
    all `comparisons` of a run together."""
    beyond = 1.0
    for count in range(trials + 1):
        beyond -= comb(trials, count) * probability**count * (1 - probability) ** (trials - count)
        if beyond <= (1 - CONFIDENCE) / comparisons:
            return count
    return trials
