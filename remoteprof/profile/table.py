"""A profile as a table of functions: what each took by itself (flat) and with all that it called (cumulative)."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from remoteprof.errors import UsageError
from remoteprof.profile.identity import EMPTY, FunctionId, Identities

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
    functions: list[FunctionId] = [EMPTY]
    numbers: dict[FunctionId, int] = {EMPTY: 0}
    # Location → its functions as numbers, which hash faster: the innermost first.
    known: dict[int, tuple[int, ...]] = {}
    flat, cumulative = [0], [0]
    empty = False
    for sample in profile.samples:
        value = sample.values[column]
        if not value:
            continue
        places = sample.locations
        try:
            through = set(chain.from_iterable(map(known.__getitem__, map(id, places))))
        except KeyError:
            for location in places:
                found = identities.of(location)
                for function in found:
                    if function not in numbers:
                        numbers[function] = len(functions)
                        functions.append(function)
                        flat.append(0)
                        cumulative.append(0)
                known[id(location)] = tuple(numbers[function] for function in found)
            through = set(chain.from_iterable(map(known.__getitem__, map(id, places))))
        if places:
            flat[known[id(places[0])][0]] += value
            for number in through:
                cumulative[number] += value
        else:
            empty = True
            flat[0] += value
            cumulative[0] += value
    rows = zip(functions, zip(flat, cumulative, strict=True), strict=True)
    return dict(row for row in rows if empty or row[0] is not EMPTY)


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
