"""A profile as a table of functions: what each took by itself (flat) and with all that it called (cumulative)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from remoteprof import _native
from remoteprof.errors import UsageError
from remoteprof.profile.identity import EMPTY, FunctionId, Identities

if TYPE_CHECKING:
    from remoteprof.profile.model import Location, Profile


class Row(NamedTuple):
    """A function: `flat` is its own value, `cumulative` that of all stacks it is in; shares are of the profile's
    total, 0 where that is 0."""

    function: FunctionId
    flat: int
    cumulative: int
    flat_share: float
    cumulative_share: float


def column_of(profile: Profile, sample_type: str | None = None) -> int:
    """The column of a sample type; by default that which the profile names, else its last one, as pprof has it. Raises
    UsageError."""
    names = [kind.type for kind in profile.sample_types]
    wanted = profile.default_sample_type if sample_type is None else sample_type
    if wanted in names:
        return names.index(wanted)
    if sample_type is not None or not names:
        raise UsageError(f"no sample type {sample_type!r}", f"this profile has: {', '.join(names) or 'none'}")
    return len(names) - 1


def weigh(profile: Profile, column: int) -> dict[FunctionId, tuple[int, int]]:
    """Function → (flat, cumulative) of a column."""
    identities, numbers = Identities(), dict[FunctionId, int]()

    def functions_of(location: Location) -> list[int]:
        return [numbers.setdefault(function, len(numbers)) for function in identities.of(location)]

    flat, cumulative = _native.weigh(profile.samples, column, functions_of)
    weights = dict(zip(numbers, zip(flat, cumulative, strict=True), strict=True))
    empty = [sample.values[column] for sample in profile.samples if not sample.locations]
    if any(empty):
        own, all_of_it = weights.get(EMPTY, (0, 0))
        weights[EMPTY] = (own + sum(empty), all_of_it + sum(empty))
    return weights


def top(profile: Profile, count: int | None = None, sample_type: str | None = None) -> list[Row]:
    """The functions with the largest own value, the largest first; see Profile.top."""
    column = column_of(profile, sample_type)
    total = sum(sample.values[column] for sample in profile.samples)
    rows = [
        Row(function, flat, cumulative, share(flat, total), share(cumulative, total))
        for function, (flat, cumulative) in weigh(profile, column).items()
    ]
    rows.sort(key=lambda row: (-abs(row.flat), -abs(row.cumulative), row.function))
    return rows[:count]


def share(value: int, total: int) -> float:
    """A part of a whole, 0 where that is nothing."""
    return value / total if total else 0.0
