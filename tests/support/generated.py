"""Profiles made up for tests: by hypothesis, by size, and of names that mean harm."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from remoteprof.profile.model import Function, Label, Line, Location, Mapping, Profile, Sample, ValueType

COUNT = ValueType("samples", "count")
CPU = ValueType("cpu", "nanoseconds")
WALL = ValueType("wall", "nanoseconds")

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\x1b]0;owned\x07\x1b[31m",
    "\u202egnp.exe\u2066",
    "bad\udcffbyte",
    "\ud800lone",
    "a;b;c 7",
    "two\nlines 9\r\nthree",
    "nul\0\x85\u2028\ufeff",
    "<!-- ]]> --> &amp; &#x3c;",
    "@PROFILE@ @SCRIPT@ {} %s",
    "' \" ` \\",
    "__proto__",
    "",
    " ",
    "ünï·代码·🔥",
    "x" * 10_000,
)
"""Names that are markup, controls, separators, no text, or far too long."""

_names = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=8), st.sampled_from("abcdef"))
_kinds = st.sampled_from([[COUNT], [COUNT, CPU], [COUNT, CPU, WALL], [ValueType("inuse_space", "bytes")]])
_labels = st.lists(
    st.one_of(
        st.builds(Label, st.sampled_from(["pid", "thread_id"]), st.integers(1, 4)),
        st.builds(Label, st.sampled_from(["thread_name", "process", "state", "<b>"]), _names),
        st.builds(Label, st.just("bytes"), st.integers(0, 9), st.just("bytes")),
    ),
    max_size=4,
    unique_by=lambda label: label.key,
).map(lambda labels: tuple(sorted(labels, key=lambda label: label.key)))


@st.composite
def profiles(draw: st.DrawFn, least: int = 0) -> Profile:
    """Any profile: hostile names, addresses without lines, inlined calls, empty stacks, equal stacks with other labels.
    Values are at least `least`."""
    kinds = draw(_kinds)
    mappings = draw(st.lists(st.builds(Mapping, st.just(4096), st.just(8192), st.just(0), _names, _names), max_size=2))
    functions = draw(st.lists(st.builds(Function, _names, _names, _names, st.integers(-1, 9)), min_size=1, max_size=5))
    line = st.builds(Line, st.sampled_from(functions), st.integers(-1, 9))
    where = st.sampled_from([None, *mappings])
    locations = draw(
        st.lists(
            st.builds(Location, st.lists(line, max_size=3), where, st.integers(0, (1 << 64) - 1)),
            min_size=1,
            max_size=6,
        )
    )
    values = st.lists(st.integers(least, 1 << 40), min_size=len(kinds), max_size=len(kinds))
    stacks = st.lists(st.sampled_from(locations), max_size=6).map(tuple)
    samples = draw(st.lists(st.builds(Sample, stacks, values, _labels), max_size=8))
    default = draw(st.sampled_from(["", *(kind.type for kind in kinds)]))
    comments = draw(st.lists(_names, max_size=2))
    return Profile(
        kinds, samples, mappings, default, ValueType("wall", "nanoseconds"), 10_000_000, 5, comments=comments
    )


def large(stacks: int, depth: int, functions: int = 800) -> Profile:
    """A profile of distinct stacks, each of which goes its own way after some calls of the one before."""
    draw = random.Random(1)
    mappings = [Mapping(4096 * i, 4096 * (i + 1), 0, f"/usr/lib/lib{i}.so", f"ab{i}") for i in range(1, 6)]
    locations = [
        Location(
            [Line(Function(f"library{i % 7}::function_{i}", f"_ZN{i}", f"/src/file{i % 50}.cc", i), i + 3)],
            mappings[i % 5],
            4096 * (i % 5 + 1) + i,
        )
        for i in range(functions)
    ]
    samples = []
    stack: list[Location] = []
    for index in range(stacks):
        kept = draw.randrange(depth) if stack else 0
        stack = stack[:kept] + [draw.choice(locations) for _ in range(depth - kept)]
        value = 1 + draw.randrange(20)
        labels = (Label("thread_id", 100 + index % 4), Label("thread_name", f"worker-{index % 4}"))
        samples.append(Sample(tuple(reversed(stack)), [value, value * 10**7, value * 10**7], labels))
    return Profile([COUNT, CPU, WALL], samples, mappings, "cpu", WALL, 10**7)
