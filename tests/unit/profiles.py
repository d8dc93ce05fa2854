"""Profiles for tests: written down in short, made up by hypothesis, and compared by what they say."""

import io

from hypothesis import strategies as st

from remoteprof.formats import pprof
from remoteprof.profile.model import Function, Label, Line, Location, Mapping, Profile, Sample, ValueType

COUNT, CPU = ValueType("samples", "count"), ValueType("cpu", "nanoseconds")
PERIOD = 10_000_000


def written(profile, compress=True):
    out = io.BytesIO()
    pprof.write(profile, out, compress)
    return out.getvalue()


def simple(stacks, build_id="", start=0x1000, **options):
    """A profile of {"leaf caller": count}, or {("leaf caller", label, …): count}; `.` alone is an address without a
    name, the address of a function
    follows its first letter."""
    mapping = Mapping(start, start + 0x1000, 0, "/bin/app", build_id)
    functions = {}
    samples = []
    for key, count in stacks.items():
        names, *labels = (key,) if isinstance(key, str) else key
        locations = []
        for name in names.split():
            if name not in functions:
                lines = [] if name == "." else [Line(Function(name, name, f"{name}.c", 1), 2)]
                functions[name] = Location(lines, mapping, start + 16 * ord(name[0]))
            locations.append(functions[name])
        samples.append(Sample(tuple(locations), [count, count * options.get("period", PERIOD)], tuple(labels)))
    made = Profile([COUNT, CPU], samples, [mapping], "cpu", CPU, PERIOD)
    for name, value in options.items():
        setattr(made, name, value)
    return made


def content(profile):
    """What a profile says, whatever its order and however its rows are shared."""
    samples = {}
    for sample in profile.samples:
        stack = tuple(
            (
                location.address,
                location.folded,
                _mapping(location.mapping),
                tuple((*_parts(line.function), line.line, line.column) for line in location.lines),
            )
            for location in sample.locations
        )
        key = (stack, tuple(sorted(sample.labels, key=repr)))
        before = samples.get(key, [0] * len(sample.values))
        samples[key] = [one + other for one, other in zip(before, sample.values, strict=True)]
    return {
        "samples": samples,
        "mappings": sorted(map(repr, profile.mappings)),
        "comments": sorted(profile.comments),
        "head": (
            profile.sample_types,
            profile.period_type,
            profile.period,
            profile.time_ns,
            profile.duration_ns,
            profile.default_sample_type,
            profile.drop_frames,
            profile.keep_frames,
            profile.doc_url,
        ),
    }


def _mapping(mapping):
    return mapping and (mapping.start, mapping.limit, mapping.offset, mapping.file, mapping.build_id)


def _parts(function):
    return function.name, function.system_name, function.file, function.start_line


_text = st.text("aé\x1b0<>/.\0\U0001f600", max_size=4)
_name = st.sampled_from(["main", "f", "g", "<module>", "a<b>::c", "é\x1b[0m", "", "gen[go.shape.int]"])
_file = st.sampled_from(["", "a.c", "/x y.py"])
_start = st.sampled_from([0, 0x1000, 0x2000, 0x7F0000000000])
_address = st.sampled_from([0, 0x1010, 0x1020, 0x2010, 0x7F0000000010, (1 << 64) - 1])
_value = st.integers(-(1 << 40), 1 << 40)
_function = st.builds(lambda *row: Function(*row), _name, _name, _file, st.integers(0, 9))
_number = st.sampled_from([0, 1, -1, (1 << 63) - 1, -(1 << 63)])
_label = st.one_of(
    st.builds(lambda key, value: Label(key, value), st.sampled_from("ab"), _text),
    st.builds(lambda key, value, unit: Label(key, value, unit), st.sampled_from("an"), _number, _text),
)


def _module(start, size, offset, file, build_id, flags):
    bits = [bool(flags & 1 << bit) for bit in range(4)]
    return Mapping(start, start + size, offset, file, build_id, *bits)


_module_of = st.builds(
    _module,
    _start,
    st.sampled_from([0x1000, 0x800]),
    st.sampled_from([0, 0x1000]),
    _file,
    st.sampled_from(["", "aa", "bb"]),
    st.integers(0, 15),
)


@st.composite
def profiles(draw):
    """Any profile that a file can hold, small."""
    mappings = draw(st.lists(_module_of, max_size=3))
    functions = draw(st.lists(_function, min_size=1, max_size=3))
    line = st.builds(lambda *row: Line(*row), st.sampled_from(functions), st.integers(0, 9), st.integers(0, 2))
    place = st.builds(
        lambda *row: Location(*row),
        st.lists(line, max_size=2),
        st.sampled_from([None, *mappings]),
        _address,
        st.booleans(),
    )
    stack = st.lists(st.sampled_from(draw(st.lists(place, min_size=1, max_size=4))), max_size=4)
    sample = st.builds(
        lambda stack, one, other, labels: Sample(tuple(stack), [one, other], tuple(labels)),
        stack,
        _value,
        _value,
        st.lists(_label, max_size=2),
    )
    return Profile(
        sample_types=[COUNT, CPU],
        samples=draw(st.lists(sample, max_size=5)),
        mappings=mappings,
        default_sample_type=draw(st.sampled_from(["", "cpu"])),
        period_type=CPU,
        period=draw(st.sampled_from([0, PERIOD])),
        time_ns=draw(st.sampled_from([0, 1, 1 << 62])),
        duration_ns=draw(st.sampled_from([0, 1, 1 << 60])),
        comments=draw(st.lists(_text, max_size=2, unique=True)),
        drop_frames=draw(_text),
        keep_frames=draw(_text),
        doc_url=draw(_text),
    )
