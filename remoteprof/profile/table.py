"""A profile as a table of functions: what each took by itself (flat) and with all that it called (cumulative)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from remoteprof.errors import UsageError
from remoteprof.profile.identity import FunctionId, Identities

if TYPE_CHECKING:
    from remoteprof.profile.model import Profile


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
    identities = Identities()
    flat: dict[FunctionId, int] = {}
    cumulative: dict[FunctionId, int] = {}
    for sample in profile.samples:
        value = sample.values[column]
        if not value:
            continue
        leaf = identities.leaf(sample)
        flat[leaf] = flat.get(leaf, 0) + value
        for function in identities.through(sample):
            cumulative[function] = cumulative.get(function, 0) + value
    return {function: (flat.get(function, 0), value) for function, value in cumulative.items()}


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
