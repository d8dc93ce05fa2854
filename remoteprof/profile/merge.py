"""Profiles → one. The sum does not depend on the order, apart from that of samples and mappings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remoteprof.errors import RemoteprofError, UsageError
from remoteprof.profile.model import (
    NO_TYPE,
    Function,
    Label,
    Line,
    Location,
    Mapping,
    Profile,
    Sample,
    ValueType,
)

MAX_INT64 = (1 << 63) - 1

_Key = tuple[object, ...]


def merge(profiles: Iterable[Profile]) -> Profile:
    """The sum of `profiles`: samples of equal stack and labels are added up.

    Code is the same where its module has the same build id, size and offset, wherever it was mapped; a module without
    a build id is the same only at the same place. The profiles must have the same sample types, in any order, and the
    same period, or none: counts of samples that stand for different times have no sum. Raises UsageError for no or
    unlike profiles, RemoteprofError where a sum does not fit into 64 bits.
    """
    given = list(profiles)
    if not given:
        raise UsageError("no profile to merge")
    first = given[0]
    with_period = next((profile for profile in given if profile.period), first)
    for other in given[1:]:
        check_alike(first, other)
        check_alike(with_period, other)
    return Merger(first.sample_types).merge(given)


def check_alike(first: Profile, other: Profile) -> None:
    """Raises UsageError where two profiles do not count the same."""
    if sorted(first.sample_types) != sorted(other.sample_types):
        raise UsageError(
            f"different sample types: {_names(first.sample_types)}, and {_names(other.sample_types)}",
            "only profiles of one kind can be added up",
        )
    if NO_TYPE != first.period_type != other.period_type != NO_TYPE:
        raise UsageError(
            f"different period types: {_names([first.period_type])}, and {_names([other.period_type])}",
            "only profiles of one kind can be added up",
        )
    if first.period and other.period and first.period != other.period:
        raise UsageError(
            f"different periods: {first.period} and {other.period} {first.period_type.unit}",
            "only profiles of one rate can be added up: samples of another rate count for more or less",
        )


def _names(kinds: Sequence[ValueType]) -> str:
    return ", ".join(f"{kind.type}/{kind.unit}" for kind in kinds) or "none"


class Merger:
    """One profile in the making: rows are kept once each, under what makes them the same."""

    def __init__(self, sample_types: Sequence[ValueType]) -> None:
        """sample_types: the columns of the sum, each of which every profile must have."""
        self._types = list(sample_types)
        self._functions: dict[_Key, Function] = {}
        self._mappings: dict[_Key, Mapping] = {}
        self._looked: set[int] = set()
        self._locations: dict[_Key, Location] = {}
        self._samples: dict[_Key, Sample] = {}

    def merge(self, profiles: Sequence[Profile]) -> Profile:
        """The sum."""
        # The lowest place is where a module stands in the sum: an order would make a difference otherwise.
        for profile in profiles:
            for mapping in profile.mappings:
                self._mapping(mapping)
        for profile in profiles:
            self._add(profile)
        starts = [profile.time_ns for profile in profiles if profile.time_ns]
        return Profile(
            sample_types=self._types,
            samples=list(self._samples.values()),
            mappings=list(self._mappings.values()),
            default_sample_type=_one(profile.default_sample_type for profile in profiles),
            period_type=max(profile.period_type for profile in profiles),
            period=max(profile.period for profile in profiles),
            time_ns=min(starts, default=0),
            duration_ns=sum(profile.duration_ns for profile in profiles),
            comments=list(dict.fromkeys(comment for profile in profiles for comment in profile.comments)),
            drop_frames=_one(profile.drop_frames for profile in profiles),
            keep_frames=_one(profile.keep_frames for profile in profiles),
            doc_url=_one(profile.doc_url for profile in profiles),
            notes=list(dict.fromkeys(note for profile in profiles for note in profile.notes)),
        )

    def _add(self, profile: Profile) -> None:
        straight = profile.sample_types == self._types
        columns = [profile.sample_types.index(kind) for kind in self._types]
        known: dict[int, Location] = {}
        sampled: set[int] = set()
        for sample in profile.samples:
            stack = []
            for location in sample.locations:
                own = known.get(id(location))
                if own is None:
                    own = known[id(location)] = self._location(location)
                    if location.mapping is not None and id(location.mapping) not in sampled:
                        sampled.add(id(location.mapping))
                        self._flags(location.mapping)
                stack.append(own)
            labels = tuple(sorted(sample.labels, key=_order)) if len(sample.labels) > 1 else sample.labels
            values = list(sample.values) if straight else [sample.values[column] for column in columns]
            key = (*map(id, stack), labels)
            before = self._samples.get(key)
            if before is None:
                self._samples[key] = Sample(tuple(stack), values, labels)
                continue
            before.values = [one + other for one, other in zip(before.values, values, strict=True)]
            if any(not -MAX_INT64 - 1 <= value <= MAX_INT64 for value in before.values):
                raise RemoteprofError("the sum of the profiles does not fit into 64 bits")

    def _mapping(self, mapping: Mapping) -> Mapping:
        place = (mapping.limit - mapping.start, mapping.offset)
        key: _Key = (*place, mapping.build_id) if mapping.build_id else (*place, mapping.start, mapping.file, None)
        own = self._mappings.get(key)
        if own is None:
            own = self._mappings[key] = _copy(mapping)
        elif (mapping.start, mapping.file) < (own.start, own.file):
            own.start, own.limit, own.file = mapping.start, mapping.limit, mapping.file
        if id(own) not in self._looked:
            # Where nothing was sampled in it, what anyone found out holds.
            for flag in _FLAGS:
                setattr(own, flag, getattr(own, flag) or getattr(mapping, flag))
        return own

    def _flags(self, mapping: Mapping) -> None:
        """Counts in what `mapping` tells of the addresses that were sampled in it: it must hold for all."""
        own = self._mapping(mapping)
        for flag in _FLAGS:
            new = getattr(mapping, flag)
            setattr(own, flag, new and getattr(own, flag) if id(own) in self._looked else new)
        self._looked.add(id(own))

    def _location(self, location: Location) -> Location:
        mapping = self._mapping(location.mapping) if location.mapping is not None else None
        address = location.address
        place = location.mapping
        # An address outside of its mapping, as files of others may have it, has nothing to move with.
        if mapping is not None and place is not None and place.start <= address < place.limit:
            address += mapping.start - place.start
        functions = [self._function(line.function) for line in location.lines]
        lines = tuple(
            (id(function), line.line, line.column) for function, line in zip(functions, location.lines, strict=True)
        )
        key = (id(mapping) if mapping is not None else 0, address, location.folded, lines)
        own = self._locations.get(key)
        if own is None:
            own_lines = [
                Line(function, line.line, line.column) for function, line in zip(functions, location.lines, strict=True)
            ]
            own = self._locations[key] = Location(own_lines, mapping, address, location.folded)
        return own

    def _function(self, function: Function) -> Function:
        key = (function.name, function.system_name, function.file, function.start_line)
        own = self._functions.get(key)
        if own is None:
            own = self._functions[key] = Function(*key)
        return own


_FLAGS = ("has_functions", "has_filenames", "has_line_numbers", "has_inline_frames")


def _copy(mapping: Mapping) -> Mapping:
    return Mapping(mapping.start, mapping.limit, mapping.offset, mapping.file, mapping.build_id)


def _one(texts: Iterable[str]) -> str:
    """One of several texts, whatever their order: the least that is not empty."""
    return min(filter(None, texts), default="")


def _order(label: Label) -> tuple[str, bool, str, str]:
    return label.key, isinstance(label.value, str), str(label.value), label.unit
