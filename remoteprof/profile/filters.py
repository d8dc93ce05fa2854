"""Parts of profiles: samples chosen by what is in their stack or on their labels. Stacks stay whole and values as they
are, so that parts add up."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from remoteprof.errors import UsageError
from remoteprof.profile.model import Location, Profile, Sample


def choose(profile: Profile, wanted: Callable[[Sample], bool]) -> Profile:
    """The samples for which `wanted` is true."""
    samples = [sample for sample in profile.samples if wanted(sample)]
    return replace(profile, samples=samples, locations={}, stats={})


def focus(profile: Profile, pattern: str) -> Profile:
    """The samples with a frame that matches; see Profile.focus."""
    matches = _Matches(pattern)
    return choose(profile, lambda sample: any(map(matches, sample.locations)))


def ignore(profile: Profile, pattern: str) -> Profile:
    """The samples without any frame that matches; see Profile.ignore."""
    matches = _Matches(pattern)
    return choose(profile, lambda sample: not any(map(matches, sample.locations)))


def tagged(profile: Profile, key: str, pattern: str | int | None = None) -> Profile:
    """The samples with a label; see Profile.tagged."""
    if isinstance(pattern, str):
        wanted = _compiled(pattern)
        return choose(
            profile,
            lambda sample: any(label.key == key and wanted.search(str(label.value)) for label in sample.labels),
        )
    return choose(
        profile,
        lambda sample: any(label.key == key and (pattern is None or label.value == pattern) for label in sample.labels),
    )


class _Matches:
    """Whether a location has a function, a file or a module that matches, each location looked at once."""

    def __init__(self, pattern: str) -> None:
        self._pattern = _compiled(pattern)
        self._known: dict[int, bool] = {}

    def __call__(self, location: Location) -> bool:
        known = self._known.get(id(location))
        if known is None:
            known = self._known[id(location)] = any(map(self._pattern.search, _texts(location)))
        return known


def _texts(location: Location) -> list[str]:
    texts = [text for line in location.lines for text in (line.function.name, line.function.file)]
    if location.mapping is not None and location.mapping.file:
        texts.append(location.mapping.file)
    return texts


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from None
