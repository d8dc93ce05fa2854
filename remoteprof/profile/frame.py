"""A profile as a data frame of pandas or polars, whichever is there."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from remoteprof.errors import UsageError
from remoteprof.profile.identity import Identities

if TYPE_CHECKING:
    from remoteprof.profile.model import Profile

LIBRARIES = ("pandas", "polars")


def columns(profile: Profile) -> dict[str, list[Any]]:
    """A list for each column, a row for each sample; see Profile.to_dataframe."""
    identities = Identities()
    names: dict[int, list[str]] = {}

    def functions(sample: Any) -> list[str]:
        found = []
        for location in sample.locations:
            of = names.get(id(location))
            if of is None:
                of = names[id(location)] = [function.name for function in identities.of(location)]
            found += of
        return found

    stacks = [functions(sample) or [identities.leaf(sample).name] for sample in profile.samples]
    leaves = [identities.leaf(sample) for sample in profile.samples]
    made: dict[str, list[Any]] = {
        "function": [leaf.name for leaf in leaves],
        "file": [leaf.file for leaf in leaves],
        "line": [
            sample.locations[0].lines[0].line if sample.locations and sample.locations[0].lines else 0
            for sample in profile.samples
        ],
        "stack": stacks,
    }
    for number, kind in enumerate(profile.sample_types):
        made[_free(kind.type, made)] = [sample.values[number] for sample in profile.samples]
    keys = dict.fromkeys(label.key for sample in profile.samples for label in sample.labels)
    for key in keys:
        kinds = set[type]()
        found: list[Any] = []
        for sample in profile.samples:
            value = next((label.value for label in sample.labels if label.key == key), None)
            kinds.add(type(value))
            found.append(value)
        # One type a column: data frames know no other.
        mixed = {int, str} <= kinds
        made[_free(key, made)] = [str(value) if mixed and value is not None else value for value in found]
    return made


def _free(name: str, taken: dict[str, list[Any]]) -> str:
    while name in taken:
        name += "_"
    return name


def to_dataframe(profile: Profile, library: str | None = None) -> Any:
    """See Profile.to_dataframe."""
    if library not in (None, *LIBRARIES):
        raise UsageError(f"unknown library {library!r}", f"known are {' and '.join(LIBRARIES)}")
    for name in [library] if library else LIBRARIES:
        try:
            module = import_module(name)
        except ImportError:
            continue
        return module.DataFrame(columns(profile))
    wanted = library or "neither pandas nor polars"
    raise UsageError(f"{wanted} is not installed" if library else f"{wanted} is installed", "pip install pandas")
