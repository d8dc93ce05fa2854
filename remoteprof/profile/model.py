"""The profile in memory: the data model of pprof, with objects where the file has ids.

A sample refers to its locations, a location to its lines and mapping, a line to its function. Ids exist only in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from remoteprof.text import base_name

if TYPE_CHECKING:
    from remoteprof.profile.diff import Diff
    from remoteprof.profile.table import Row

EMPTY_STACK = "[empty]"
"""What the stack of a sample without frames is called."""


class ValueType(NamedTuple):
    """What a column of values counts, such as `cpu` in `nanoseconds`."""

    type: str
    unit: str


NO_TYPE = ValueType("", "")


@dataclass(slots=True)
class Mapping:
    """A range of the target's memory that a file was mapped to, as in pprof.

    `start <= address < limit`; `offset` is that of `start` in the file; `build_id` is hex, "" = none. The has_* flags
    are true only where every address sampled in the mapping has that fact, and at least one was sampled.
    """

    start: int = 0
    limit: int = 0
    offset: int = 0
    file: str = ""
    build_id: str = ""
    has_functions: bool = False
    has_filenames: bool = False
    has_line_numbers: bool = False
    has_inline_frames: bool = False


@dataclass(slots=True)
class Function:
    """A function: `name` for people, `system_name` as the linker or interpreter has it; `start_line` 0 = unknown."""

    name: str
    system_name: str = ""
    file: str = ""
    start_line: int = 0


@dataclass(slots=True)
class Line:
    """A line of a function; 0 = unknown."""

    function: Function
    line: int = 0
    column: int = 0


@dataclass(slots=True)
class Location:
    """A place that stacks pass through: an address of a mapping, or lines alone. Of its lines the innermost inlined
    call stands first."""

    lines: list[Line] = field(default_factory=list)
    mapping: Mapping | None = None
    address: int = 0
    folded: bool = False
    """Whether the linker made one function of several equal ones, so that the name may be another's."""


class Label(NamedTuple):
    """A fact about a sample: text, or a number (of `unit`, "" = none)."""

    key: str
    value: str | int
    unit: str = ""


TIME = ("time", "unix_nanoseconds")
"""Key and unit of the label that says when a sample was taken, where that was kept."""


def time_of(labels: tuple[Label, ...]) -> int:
    """When a sample with these labels was taken, Unix nanoseconds; 0 = that was not kept."""
    for label in labels:
        if (label.key, label.unit) == TIME and isinstance(label.value, int):
            return label.value
    return 0


def untimed(labels: tuple[Label, ...]) -> tuple[Label, ...]:
    """`labels` without that of the time, which tells each sample from all others."""
    return tuple(label for label in labels if (label.key, label.unit) != TIME)


BASE = Label("pprof::base", "true")
"""What pprof marks the samples of the older profile in a difference with; their values are negated."""


@dataclass(slots=True)
class Sample:
    """A stack, leaf first, with one value for each sample type of its profile, and its labels sorted by key."""

    locations: tuple[Location, ...]
    values: list[int]
    labels: tuple[Label, ...] = ()


class Weight(NamedTuple):
    """A function with the value that it has by itself, callees left out."""

    function: Function
    value: int


@dataclass(slots=True)
class Profile:
    """A recording. Times are Unix nanoseconds, durations nanoseconds, 0 = unknown.

    >>> main, parse = Function("main", file="app.py"), Function("parse", file="app.py")
    >>> inner, outer = Location([Line(parse, 9)]), Location([Line(main, 3)])
    >>> samples = [Sample((inner, outer), [3_000_000]), Sample((outer,), [1_000_000], (Label("pid", 7),))]
    >>> profile = Profile([ValueType("cpu", "nanoseconds")], samples)
    >>> profile.total("cpu")
    4000000
    >>> [(row.function.name, row.flat, row.cumulative) for row in profile.top()]
    [('parse', 3000000, 3000000), ('main', 1000000, 4000000)]
    >>> profile.focus("parse").total("cpu"), profile.ignore("parse").total("cpu"), profile.tagged("pid", 7).total("cpu")
    (3000000, 1000000, 1000000)
    >>> profile.filter(lambda sample: len(sample.locations) > 1).total("cpu")
    3000000
    >>> profile.merge(profile).total("cpu")
    8000000
    >>> [(change.function.name, change.flat) for change in profile.diff(profile.focus("parse")).changes]
    [('main', -1000000)]
    """

    sample_types: list[ValueType] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    mappings: list[Mapping] = field(default_factory=list)
    """The main binary first."""
    default_sample_type: str = ""
    period_type: ValueType = NO_TYPE
    period: int = 0
    time_ns: int = 0
    duration_ns: int = 0
    comments: list[str] = field(default_factory=list)
    drop_frames: str = ""
    keep_frames: str = ""
    doc_url: str = ""
    locations: dict[int, Location] = field(default_factory=dict)
    """The numbers of the locations in the file, in its order, unused ones too; empty where they are counted from 1 as
    the samples come to them, which is how any other profile is written."""
    stats: dict[str, Any] = field(default_factory=dict)
    """How the recording went: the object of `--stats`. Empty for a profile that was loaded."""
    notes: list[str] = field(default_factory=list)
    """What whoever reads the profile should be told, such as a lowered rate. Part of the comments when written."""

    def index(self, sample_type: str) -> int:
        """The column of `sample_type`, such as "cpu". Raises KeyError."""
        for position, kind in enumerate(self.sample_types):
            if kind.type == sample_type:
                return position
        raise KeyError(sample_type)

    def total(self, sample_type: str) -> int:
        """The sum of a column; 0 where the profile has no such column."""
        try:
            column = self.index(sample_type)
        except KeyError:
            return 0
        return sum(sample.values[column] for sample in self.samples)

    def functions(self) -> Iterator[Function]:
        """Every function that a sample passes through, once."""
        seen: set[int] = set()
        for sample in self.samples:
            for location in sample.locations:
                for line in location.lines:
                    if id(line.function) not in seen:
                        seen.add(id(line.function))
                        yield line.function

    def heaviest(self, count: int, sample_type: str) -> list[Weight]:
        """The `count` functions with the largest own value of a column, the largest first; zeros are left out."""
        try:
            column = self.index(sample_type)
        except KeyError:
            return []
        own: dict[tuple[str, str, int], Weight] = {}
        for sample in self.samples:
            value = sample.values[column]
            if not value:
                continue
            function = leaf_function(sample)
            key = (function.name, function.file, function.start_line)
            before = own.get(key)
            own[key] = Weight(function, value + (before.value if before else 0))
        return sorted(own.values(), key=lambda weight: (-weight.value, weight.function.name))[:count]

    def top(self, count: int | None = None, sample_type: str | None = None) -> list[Row]:
        """The `count` functions (None = all) with the largest own value of a sample type, the largest first; by default
        of the profile's default type. Functions are told apart by name, file and module. Raises UsageError for an
        unknown type."""
        from remoteprof.profile.table import top

        return top(self, count, sample_type)

    def merge(self, *others: Profile) -> Profile:
        """The sum of this profile and others, which stay as they are. Raises UsageError where they do not count the
        same (sample types, period), RemoteprofError where a sum does not fit into 64 bits."""
        from remoteprof.profile.merge import merge

        return merge([self, *others])

    def diff(self, new: Profile, sample_type: str | None = None, *, normalize: bool = False) -> Diff:
        """What changed from this profile to `new`, of a sample type; by default of the default type of `new`.
        normalize: as if both totals were equal. Raises UsageError where there is nothing to compare."""
        from remoteprof.profile.diff import diff

        return diff(self, new, sample_type, normalize=normalize)

    def filter(self, wanted: Callable[[Sample], bool]) -> Profile:
        """A profile of the samples for which `wanted` is true; samples are shared, not copied."""
        from remoteprof.profile.filters import choose

        return choose(self, wanted)

    def focus(self, pattern: str) -> Profile:
        """The samples with a frame whose function, file or module has a match of a regular expression, as -focus of
        pprof. Raises UsageError for a bad expression."""
        from remoteprof.profile.filters import focus

        return focus(self, pattern)

    def ignore(self, pattern: str) -> Profile:
        """The samples without any frame that focus() would choose, as -ignore of pprof."""
        from remoteprof.profile.filters import ignore

        return ignore(self, pattern)

    def tagged(self, key: str, value: str | int | None = None) -> Profile:
        """The samples with the label `key`: with any value, with a number, or with a match of a regular expression."""
        from remoteprof.profile.filters import tagged

        return tagged(self, key, value)

    def to_dataframe(self, library: str | None = None) -> Any:
        """A data frame of `library` ("pandas" or "polars"; None = the first of these that is installed), a row for each
        sample: `function`, `file` and `line` of the leaf, `stack` (names, leaf first), a column for each sample type,
        and one for each label. A name that is taken gets a `_`. Raises UsageError where the library is missing."""
        from remoteprof.profile.frame import to_dataframe

        return to_dataframe(self, library)

    def save(self, path: str | Path) -> int:
        """Writes the profile, in the format that the suffix of `path` names (pprof for any other), and gives the number
        of bytes. No half file is ever left. Raises OutputError."""
        from remoteprof.formats import save

        return save(self, str(path))

    @staticmethod
    def load(path: str | Path, *, signed: bool = False) -> Profile:
        """Reads a profile made by anyone: pprof, compressed or not, or a CPU profile of gperftools.

        Values below zero are refused unless `signed`, or unless the profile says that it is a difference: they mean
        nothing where time or events were counted. Raises RemoteprofError, an error for anything that is wrong in it.
        """
        from remoteprof.profile.loading import load

        return load(path, signed=signed)


def leaf_function(sample: Sample) -> Function:
    """The function that was running; code without a name goes by its module, as `[libz.so.1]`."""
    if not sample.locations:
        return Function(EMPTY_STACK, EMPTY_STACK)
    leaf = sample.locations[0]
    if leaf.lines:
        return leaf.lines[0].function
    return Function(module_frame(leaf.mapping), "", leaf.mapping.file if leaf.mapping else "")


def module_frame(mapping: Mapping | None) -> str:
    """What code without a name is called: its module, as `[libz.so.1]`."""
    return f"[{base_name(mapping.file) if mapping and mapping.file else 'unknown'}]"
