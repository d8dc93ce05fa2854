"""A profile as the gate sees it: what each function and each of its lines has of one column, and how many independent
samples that rests on. Small beside the profile, so that many base profiles fit into memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from remoteprof.errors import UsageError
from remoteprof.profile.model import EMPTY_STACK, Label, Location, Profile, Sample, ValueType, module_frame, untimed
from remoteprof.profile.table import column_of
from remoteprof.text import base_name

COUNT = ValueType("samples", "count")
NOT_CODE = ("[unsampled]", "[truncated]", "[unmatched]", EMPTY_STACK)
"""Frames that tell of the recording, not of the program."""
_NOT_CODE_START = "[unreadable"
_Key = TypeVar("_Key")


class Code(NamedTuple):
    """A function over recordings and builds: `place` is its source file, or else the base name of its module. Unlike
    FunctionId it has no build id: what is checked is mostly a new build."""

    name: str
    place: str


class Spot(NamedTuple):
    """A line of a function; 0 = unknown."""

    code: Code
    line: int


MOST = 4
"""Times the typical value of a sample that one counts for at most. A sampler that had no core for a while puts all that
ran meanwhile on the next sample: the sum is right, but such a sample would outweigh hundreds."""

EVEN = 1 / 6
"""Variance of the values of a thread's samples, as a part of their mean's square, up to which they count the same.
Ticks that are jittered by up to half a period (native/src/clock.rs) make it 1/12 where a thread runs all the time."""


@dataclass(slots=True)
class Observed:
    """What one recording says of one column. Values are in its unit; `cumulative` counts a function once a stack."""

    kind: ValueType
    total: int = 0
    """All of it."""
    counted: int = 0
    """What shares are of: without what was not sampled, each sample for no more than MOST typical ones, and those of a
    thread that ran all the time for the same."""
    flat: dict[Code, int] = field(default_factory=dict)
    cumulative: dict[Code, int] = field(default_factory=dict)
    flat_lines: dict[Spot, int] = field(default_factory=dict)
    cumulative_lines: dict[Spot, int] = field(default_factory=dict)
    samples: float = 0.0
    """The effective number of samples, (Σw)² / Σw²; 0 = the profile does not tell."""


def observe(profile: Profile, sample_type: str | None = None) -> Observed:
    """Adds a profile up, by default by `cpu` where it has that, else by its default type. Raises UsageError for a
    profile without the type, and for values below zero."""
    if sample_type is None and any(kind.type == "cpu" for kind in profile.sample_types):
        sample_type = "cpu"
    column = column_of(profile, sample_type)
    seen = Observed(profile.sample_types[column])
    seen.total = sum(sample.values[column] for sample in profile.samples)
    if any(sample.values[column] < 0 for sample in profile.samples):
        raise UsageError("values below zero: this is a difference", "check the profile that was recorded")
    known: dict[int, tuple[Spot, ...]] = {}
    rows = _rows(profile, column)
    for sample, _, value in rows:
        seen.counted += value
        stack: list[Spot] = []
        for location in sample.locations:
            spots = known.get(id(location))
            if spots is None:
                spots = known[id(location)] = spots_of(location)
            stack += spots
        if not stack:
            continue
        _add(seen.flat, stack[0].code, value)
        _add(seen.flat_lines, stack[0], value)
        for spot in set(stack):
            _add(seen.cumulative_lines, spot, value)
        for code in {spot.code for spot in stack}:
            _add(seen.cumulative, code, value)
    seen.samples = _effective(profile, seen, rows)
    return seen


class _Row(NamedTuple):
    """A sample that has a value."""

    sample: Sample
    ticks: int
    """How many it is the sum of; 0 = the profile does not tell."""
    value: int
    """As much of its value as counts."""


class _Group(NamedTuple):
    """The rows of one thread, or what else has the same labels. Rows of different labels, such as those of a busy and
    of an idle thread, differ for other reasons than chance."""

    rows: list[_Row]
    ticks: int
    value: int
    between: float
    """The sum of squares between its rows: a row is the sum of many samples, so the spread of single values is
    estimated from that (one-way analysis of variance)."""


def _groups(rows: list[_Row]) -> list[_Group]:
    found: dict[tuple[Label, ...], list[_Row]] = {}
    for row in rows:
        found.setdefault(untimed(row.sample.labels), []).append(row)
    groups = []
    for own in found.values():
        ticks, value = sum(row.ticks for row in own), sum(row.value for row in own)
        between = sum(row.value * row.value / row.ticks for row in own) - value * value / ticks
        groups.append(_Group(own, ticks, value, max(between, 0.0)))
    return groups


def _rows(profile: Profile, column: int) -> list[_Row]:
    try:
        counts = profile.sample_types.index(COUNT)
    except ValueError:
        return [_Row(sample, 0, sample.values[column]) for sample in profile.samples if sample.values[column]]
    rows = [
        _Row(sample, sample.values[counts], sample.values[column])
        for sample in profile.samples
        if sample.values[counts] > 0 and sample.values[column]
    ]
    # The median over samples of what one has.
    single = sorted((value / count, count) for _, count, value in rows)
    half = sum(count for _, count in single) / 2
    typical = 0.0
    for value, count in single:
        typical = value
        half -= count
        if half <= 0:
            break
    return _evened([row._replace(value=min(row.value, max(round(MOST * typical * row.ticks), 1))) for row in rows])


def _evened(rows: list[_Row]) -> list[_Row]:
    """Where the values of a thread's samples differ by no more than the ticks do, that is our own noise, and no sample
    tells more than another. A thread that now and then waits has rows of larger and of smaller values."""
    evened: list[_Row] = []
    for group in _groups(rows):
        mean, freedom = group.value / group.ticks, len(group.rows) - 1
        even = freedom > 0 and group.between <= EVEN * mean * mean * freedom
        evened += [row._replace(value=round(mean * row.ticks)) for row in group.rows] if even else group.rows
    return evened


def _add(sums: dict[_Key, int], key: _Key, value: int) -> None:
    sums[key] = sums.get(key, 0) + value


def spots_of(location: Location) -> tuple[Spot, ...]:
    """The functions and lines at a location, the innermost inlined call first."""
    module = base_name(location.mapping.file) if location.mapping is not None else ""
    if not location.lines:
        return (Spot(Code(module_frame(location.mapping), module), 0),)
    return tuple(Spot(Code(line.function.name, line.function.file or module), line.line) for line in location.lines)


def is_code(code: Code) -> bool:
    """Whether a frame is a part of the program."""
    return code.name not in NOT_CODE and not code.name.startswith(_NOT_CODE_START)


def _effective(profile: Profile, seen: Observed, rows: list[_Row]) -> float:
    """(Σw)² / Σw² over the samples' values w."""
    ticks, total = sum(row.ticks for row in rows), seen.counted
    if not ticks:
        one = 1 if seen.kind.unit == "count" else profile.period if profile.period_type.unit == seen.kind.unit else 0
        return total / one if one else 0.0
    groups = _groups(rows)
    squares = sum(group.value * group.value / group.ticks for group in groups)
    # Within rows the squares are as between them, for each sample instead of each row.
    freedom = len(rows) - len(groups)
    squares += ticks * sum(group.between for group in groups) / freedom if freedom else 0.0
    return total * total / squares if squares else 0.0
