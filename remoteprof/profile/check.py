"""The gate: does a profile hold what it must? Against limits that are given, and against base profiles, from which the
noise is learned (check_noise.py says how)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple

from remoteprof.errors import UsageError
from remoteprof.profile.check_noise import BLOCK_NS, Shares, compare
from remoteprof.profile.check_shares import Code, Observed, Spot, is_code, observe, spots_of
from remoteprof.profile.model import Function, Profile, ValueType
from remoteprof.profile.table import column_of

FALSE_ALARMS = 0.01
MAX_GROWTH = 0.05
MAX_LINES = 3
"""Lines that are told of a function."""
MAX_PARTS = 8
"""Folders of a source file that may be a part of a function's dotted name."""

_PACKAGES = re.compile(r".*/(?:site-packages|dist-packages|python\d+(?:\.\d+)?)/")


class Limit(NamedTuple):
    """What the functions that match `pattern` may have, with all that they call: a share of the total (0 to 1), or a
    value in the column's unit."""

    pattern: str
    share: float | None = None
    value: int | None = None


class Budget(NamedTuple):
    """What a profile may have in all of a sample type, in its unit."""

    sample_type: str
    value: int


class LimitResult(NamedTuple):
    """How a limit was kept. `functions` is how many matched."""

    limit: Limit
    kind: ValueType
    value: int
    share: float
    functions: int
    kept: bool


class BudgetResult(NamedTuple):
    """How a budget was kept."""

    budget: Budget
    kind: ValueType
    value: int
    kept: bool


class GrownLine(NamedTuple):
    """A line: shares (0 to 1) of the total, before (the mean of the bases) and now."""

    line: int
    before: float
    now: float


class Growth(NamedTuple):
    """A function that has a larger share than before. `cumulative`: with all that it calls. Shares are 0 to 1; `chance`
    is that of such a difference where nothing changed."""

    code: Code
    cumulative: bool
    before: float
    now: float
    chance: float
    alarm: float
    """From what chance on it is an alarm."""
    lines: tuple[GrownLine, ...] = ()

    @property
    def growth(self) -> float:
        """By how much the share grew, as a part of what it was; inf for what was not there."""
        return self.now / self.before - 1 if self.before else math.inf


@dataclass(slots=True)
class Verdict:
    """What was checked, and how it went."""

    kind: ValueType
    total: int
    bases: int = 0
    base_totals: list[int] = field(default_factory=list)
    false_alarms: float = FALSE_ALARMS
    max_growth: float = MAX_GROWTH
    compared: int = 0
    """Comparisons over which the false-alarm rate holds."""
    dispersion: float = 1.0
    """The variance of a typical function, as a multiple of that of independent samples."""
    samples: float = 0.0
    """Effective ones, of the profile."""
    growths: list[Growth] = field(default_factory=list)
    """The functions that failed, the largest growth in share of the total first."""
    limits: list[LimitResult] = field(default_factory=list)
    budgets: list[BudgetResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether all that was asked for holds."""
        return not self.failures

    @property
    def failures(self) -> int:
        """How many functions, limits and budgets failed."""
        broken = sum(not one.kept for one in self.limits) + sum(not one.kept for one in self.budgets)
        return len(self.growths) + broken


def check(
    profile: Profile,
    against: Iterable[Profile] = (),
    *,
    max_growth: float = MAX_GROWTH,
    limits: Sequence[Limit] = (),
    budgets: Sequence[Budget] = (),
    sample_type: str | None = None,
    false_alarms: float = FALSE_ALARMS,
) -> Verdict:
    """Checks a profile.

    against: profiles of the program as it was, each looked at once and not kept. A function fails if its share of the
    total, by itself or with all that it calls, is larger than in these by more than `max_growth` (0.05 = 5 % of what it
    was) and by more than noise explains. Where nothing changed, the chance that any function fails is at most
    `false_alarms`. sample_type: what is compared; by default `cpu`, or the profile's default type.

    Raises UsageError where there is nothing to check or compare.
    """
    if not 0 < false_alarms < 1:
        raise UsageError("a rate of false alarms is above 0 and below 1", "for example 0.01, or 1%")
    new = observe(profile, sample_type)
    verdict = Verdict(new.kind, new.total, false_alarms=false_alarms, max_growth=max_growth, samples=new.samples)
    verdict.limits = [_limited(profile, limit, new) for limit in limits]
    verdict.notes += [f"no function matches {one.limit.pattern!r}" for one in verdict.limits if not one.functions]
    verdict.budgets = [_budgeted(profile, budget) for budget in budgets]
    bases = [_base(base, new.kind) for base in against]
    if bases:
        _against(verdict, new, bases)
    return verdict


def _base(profile: Profile, kind: ValueType) -> Observed:
    if kind not in profile.sample_types:
        raise UsageError(
            f"a base profile has no {kind.type}/{kind.unit}", "compare profiles of one kind, or choose a type (-t)"
        )
    return observe(profile, kind.type)


def _against(verdict: Verdict, new: Observed, bases: list[Observed]) -> None:
    verdict.bases = len(bases)
    verdict.base_totals = [base.total for base in bases]
    if min(new.counted, *(base.counted for base in bases)) <= 0:
        which = "the profile has" if new.counted <= 0 else "a base profile has"
        raise UsageError(f"{which} no {new.kind.type} to compare", "record while the program works")
    counts = [_samples(base, len(bases)) for base in bases]
    if min(*counts, count := _samples(new, len(bases))) <= 0:
        raise UsageError(
            f"the number of samples behind {new.kind.type} is not known", "give several base profiles to learn from"
        )
    verdict.samples = count
    cases: dict[Shares, dict[Code, bool]] = {}
    for cumulative in (False, True):
        tables = [base.cumulative if cumulative else base.flat for base in bases]
        now = new.cumulative if cumulative else new.flat
        for code in dict.fromkeys([*now, *(code for table in tables for code in table)]):
            if not is_code(code):
                continue
            shares = Shares(
                tuple(table.get(code, 0) / base.counted for table, base in zip(tables, bases, strict=True)),
                now.get(code, 0) / new.counted,
            )
            # Equal values are one comparison: of a function that calls nothing, of calls that always come together.
            cases.setdefault(shares, {}).setdefault(code, cumulative)
    tests, verdict.dispersion = compare(list(cases), counts, count, verdict.false_alarms)
    verdict.compared = len(cases)
    for (shares, functions), test in zip(cases.items(), tests, strict=True):
        before = sum(share * n for share, n in zip(shares.bases, counts, strict=True)) / sum(counts)
        for code, cumulative in functions.items():
            grown = Growth(code, cumulative, before, shares.new, test.chance, test.alarm)
            if grown.growth > verdict.max_growth and test.chance <= test.alarm:
                verdict.growths.append(grown._replace(lines=_lines(grown, new, bases)))
    verdict.growths.sort(key=lambda one: (one.before - one.now, one.code))
    if len(bases) == 1:
        verdict.notes.append(
            "one base profile shows no noise: only large growth is found; give five or more of the same program"
        )


def _samples(seen: Observed, bases: int) -> float:
    if bases == 1 and seen.kind.unit == "nanoseconds":
        return min(seen.samples, seen.counted / BLOCK_NS)
    # The noise is learned as a multiple of what this would give, so any number that is the same for all will do.
    return seen.samples or (1000.0 if bases > 1 else 0.0)


def _lines(grown: Growth, new: Observed, bases: list[Observed]) -> tuple[GrownLine, ...]:
    """The lines of a function that have a larger share than before, the largest difference first."""

    def table(seen: Observed) -> dict[Spot, int]:
        return seen.cumulative_lines if grown.cumulative else seen.flat_lines

    found = []
    for spot, value in table(new).items():
        if spot.code == grown.code and spot.line:
            before = sum(table(base).get(spot, 0) / base.counted for base in bases) / len(bases)
            line = GrownLine(spot.line, before, value / new.counted)
            if line.now > line.before:
                found.append(line)
    return tuple(sorted(found, key=lambda line: (line.before - line.now, line.line))[:MAX_LINES])


def _limited(profile: Profile, limit: Limit, new: Observed) -> LimitResult:
    try:
        pattern = re.compile(limit.pattern)
    except re.error as error:
        raise UsageError(f"{limit.pattern!r} is not a regular expression: {error}") from None
    column = profile.sample_types.index(new.kind)
    known: dict[int, set[Code]] = {}
    matched: set[Code] = set()
    total = 0
    for sample in profile.samples:
        hit = False
        for location in sample.locations:
            found = known.get(id(location))
            if found is None:
                functions = [line.function for line in location.lines] or [Function(spots_of(location)[0].code.name)]
                found = known[id(location)] = {
                    spot.code
                    for spot, function in zip(spots_of(location), functions, strict=True)
                    if any(map(pattern.fullmatch, names_of(function)))
                }
                matched |= found
            hit = hit or bool(found)
        if hit:
            total += sample.values[column]
    part = total / new.total if new.total else 0.0
    kept = part <= limit.share if limit.share is not None else total <= (limit.value or 0)
    return LimitResult(limit, new.kind, total, part, len(matched), kept)


def names_of(function: Function) -> list[str]:
    """What a pattern is matched against, as a whole: the name, and in Python the name behind each dotted path that its
    module may have, such as `json.encoder.JSONEncoder.encode`."""
    names = [function.name]
    if function.file.endswith(".py"):
        path = PurePosixPath(_PACKAGES.sub("", function.file)).with_suffix("")
        parts = [part for part in path.parts if part != "/"]
        if parts[-1:] == ["__init__"]:
            parts.pop()
        parts = parts[-MAX_PARTS:]
        names += [".".join([*parts[start:], function.name]) for start in range(len(parts))]
    return names


def _budgeted(profile: Profile, budget: Budget) -> BudgetResult:
    column = column_of(profile, budget.sample_type)
    value = sum(sample.values[column] for sample in profile.samples)
    return BudgetResult(budget, profile.sample_types[column], value, value <= budget.value)
