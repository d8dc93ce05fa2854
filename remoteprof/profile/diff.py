"""Two profiles → what changed between them, function by function."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from remoteprof.errors import UsageError
from remoteprof.profile.identity import FunctionId
from remoteprof.profile.merge import MAX_INT64, Merger
from remoteprof.profile.model import BASE, Profile, Sample, ValueType
from remoteprof.profile.table import column_of, share, weigh


class Change(NamedTuple):
    """A function before and after: values by itself (flat) and with all that it called (cumulative), in the unit of the
    difference; the shares are of each profile's own total."""

    function: FunctionId
    base_flat: int
    new_flat: int
    base_cumulative: int
    new_cumulative: int
    base_flat_share: float
    new_flat_share: float
    base_cumulative_share: float
    new_cumulative_share: float

    @property
    def flat(self) -> int:
        """What the function took more, by itself."""
        return self.new_flat - self.base_flat

    @property
    def cumulative(self) -> int:
        """What the function took more, with all that it called."""
        return self.new_cumulative - self.base_cumulative


@dataclass(slots=True)
class Diff:
    """What changed from `base` to `new`. Totals are those of the compared sample type."""

    base: Profile
    """Scaled, where `notes` say so."""
    new: Profile
    sample_type: ValueType
    base_total: int = 0
    new_total: int = 0
    changes: list[Change] = field(default_factory=list)
    """The functions that changed, the largest change (flat, either way) first."""
    notes: list[str] = field(default_factory=list)
    """How values were scaled, and what could not be compared."""

    def by_cumulative(self) -> list[Change]:
        """The changes, the largest cumulative one first."""
        return sorted(self.changes, key=lambda change: (-abs(change.cumulative), -abs(change.flat), change.function))

    def profile(self) -> Profile:
        """The difference as a profile: the samples of `new`, and those of `base` negated and labelled as pprof does it
        (`-diff_base`), by which pprof takes percentages from the base."""
        common = [kind for kind in self.new.sample_types if kind in self.base.sample_types]
        negated = [
            Sample(sample.locations, [-value for value in sample.values], (BASE, *sample.labels))
            for sample in self.base.samples
        ]
        # Of one time and length there is nothing to say: those of the newer stand.
        base = replace(self.base, samples=negated, time_ns=0, duration_ns=0, comments=[], period=0)
        made = Merger(common).merge([self.new, base])
        made.time_ns = self.new.time_ns
        made.period, made.period_type = self.new.period, self.new.period_type
        made.default_sample_type = self.sample_type.type
        made.comments = [*made.comments, *self.notes]
        return made


def diff(base: Profile, new: Profile, sample_type: str | None = None, *, normalize: bool = False) -> Diff:
    """What changed from `base` to `new`.

    sample_type: what is compared, such as "cpu"; by default what `new` names. normalize: scale `base` so that the
    totals are equal, for recordings of different length. Where the periods differ, columns that count samples are
    scaled, and the notes say so.

    A function is the same by name, file and build id of its module; one that is on either side in another build only,
    and there is just one such on each side, is taken for the same.

    Raises UsageError where there is nothing to compare.
    """
    kind = new.sample_types[column_of(new, sample_type)]
    if kind not in base.sample_types:
        raise UsageError(
            f"no {kind.type}/{kind.unit} in the base profile, which has: "
            + (", ".join(f"{one.type}/{one.unit}" for one in base.sample_types) or "none"),
            "choose a sample type that both have (-t)",
        )
    notes: list[str] = []
    missing = [one.type for one in new.sample_types if one not in base.sample_types]
    missing += [one.type for one in base.sample_types if one not in new.sample_types]
    if missing:
        notes.append(f"only one of the profiles has: {', '.join(missing)}")
    base = _on_one_period(base, new, notes)
    base_column, new_column = base.sample_types.index(kind), new.sample_types.index(kind)
    if normalize:
        base = _normalized(base, base_column, sum(sample.values[new_column] for sample in new.samples), notes)
    made = Diff(base, new, kind, notes=notes)
    made.base_total = sum(sample.values[base_column] for sample in base.samples)
    made.new_total = sum(sample.values[new_column] for sample in new.samples)
    before, after = weigh(base, base_column), weigh(new, new_column)
    _pair_builds(before, after)
    for function in dict.fromkeys([*after, *before]):
        old, now = before.get(function, (0, 0)), after.get(function, (0, 0))
        if old == now:
            continue
        of_base = [share(value, made.base_total) for value in old]
        of_new = [share(value, made.new_total) for value in now]
        shares = (of_base[0], of_new[0], of_base[1], of_new[1])
        made.changes.append(Change(function, old[0], now[0], old[1], now[1], *shares))
    made.changes.sort(key=lambda change: (-abs(change.flat), -abs(change.cumulative), change.function))
    return made


def _on_one_period(base: Profile, new: Profile, notes: list[str]) -> Profile:
    """`base` with its counts of samples as if it had been recorded with the period of `new`."""
    if not (base.period and new.period) or (base.period, base.period_type) == (new.period, new.period_type):
        return base
    # A count stands for a period each; times and bytes are what they are. In other profiles a count is one of events.
    counts = [one.unit == "count" and one.type == "samples" for one in base.sample_types]
    if not any(counts):
        return base
    if base.period_type != new.period_type:
        raise UsageError(
            f"different period types: {base.period_type.type} and {new.period_type.type}",
            "only profiles of one kind can be compared",
        )
    factor = base.period / new.period
    notes.append(
        f"different periods: samples of the base profile ({base.period} {base.period_type.unit} each) "
        f"count {factor:g} times, as those of the new one ({new.period})"
    )
    return _scaled(base, [factor if count else 1.0 for count in counts])


def _normalized(base: Profile, column: int, wanted: int, notes: list[str]) -> Profile:
    total = sum(sample.values[column] for sample in base.samples)
    if not total or not wanted:
        raise UsageError("a profile of nothing cannot be normalized", "compare without --normalize")
    factor = wanted / total
    notes.append(f"normalized: values of the base profile count {factor:g} times")
    return _scaled(base, [factor] * len(base.sample_types))


def _scaled(profile: Profile, factors: list[float]) -> Profile:
    def scale(value: int, factor: float) -> int:
        return max(-MAX_INT64, min(MAX_INT64, round(value * factor)))

    samples = [
        Sample(
            sample.locations,
            [
                value if factor == 1 else scale(value, factor)
                for value, factor in zip(sample.values, factors, strict=True)
            ],
            sample.labels,
        )
        for sample in profile.samples
    ]
    return replace(profile, samples=samples)


def _pair_builds(before: dict[FunctionId, tuple[int, int]], after: dict[FunctionId, tuple[int, int]]) -> None:
    """Renames functions of `before` that went to another build of their module."""
    gone, come = _by_name(before, after), _by_name(after, before)
    for name, old in gone.items():
        new = come.get(name, [])
        if len(old) == len(new) == 1:
            before[new[0]] = before.pop(old[0])


def _by_name(
    table: dict[FunctionId, tuple[int, int]], other: dict[FunctionId, tuple[int, int]]
) -> dict[tuple[str, str], list[FunctionId]]:
    found: dict[tuple[str, str], list[FunctionId]] = {}
    for function in table:
        if function not in other:
            found.setdefault((function.name, function.file), []).append(function)
    return found
