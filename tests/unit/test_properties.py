"""What holds for all profiles, tried on profiles that hypothesis makes up."""

import copy
import os
import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import content, profiles, written

from remoteprof.errors import RemoteprofError
from remoteprof.formats.pprof_reader import parse
from remoteprof.profile import loading
from remoteprof.profile.diff import diff
from remoteprof.profile.merge import merge
from remoteprof.profile.records import RecordError, Records

LONG = bool(os.environ.get("REMOTEPROF_LONG"))
# What takes how long depends on the machine: no deadline. Derandomized: a failure comes again.
often = settings(max_examples=2_000 if LONG else 100, deadline=None, derandomize=True)


@often
@given(profiles(), st.booleans())
def test_what_was_written_is_read(profile, compress):
    assert parse(written(profile, compress), signed=True) == profile


@often
@given(profiles())
def test_what_was_read_is_written_alike(profile):
    first = written(profile)
    assert written(parse(first, signed=True)) == first


@often
@given(profiles(), profiles())
def test_a_sum_does_not_depend_on_the_order(one, other):
    assert content(merge([one, other])) == content(merge([other, one]))


@often
@given(profiles(), profiles(), profiles())
def test_a_sum_does_not_depend_on_the_grouping(first, second, third):
    left = content(merge([merge([first, second]), third]))
    assert left == content(merge([first, merge([second, third])])) == content(merge([first, second, third]))


@often
@given(profiles(), profiles())
def test_a_sum_leaves_its_parts_alone(one, other):
    before = copy.deepcopy((one, other))
    made = merge([one, other])
    assert (one, other) == before
    for kind in ("samples", "cpu"):
        assert made.total(kind) == one.total(kind) + other.total(kind)


@often
@given(profiles())
def test_nothing_changed_from_a_profile_to_itself(profile):
    for kind in ("samples", "cpu"):
        assert diff(profile, copy.deepcopy(profile), kind).changes == []


@often
@given(profiles(), profiles())
def test_the_changes_add_up(base, new):
    found = diff(base, new, "cpu")
    assert sum(change.flat for change in found.changes) == new.total("cpu") - base.total("cpu")
    assert found.profile().total("cpu") == new.total("cpu") - base.total("cpu")
    back = {change.function: -change.flat for change in diff(new, base, "cpu").changes}
    assert {abs(value) for value in back.values()} == {abs(change.flat) for change in found.changes}


@often
@given(profiles(), st.data())
def test_a_broken_profile_is_one_error(profile, data):
    raw = bytearray(written(profile, compress=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 3))):
        where = data.draw(st.integers(0, len(raw) - 1))
        raw[where : where + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    refused_or_read(bytes(raw))


@often
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_one_error(raw):
    refused_or_read(raw)


@often
@given(
    st.lists(st.one_of(st.integers(0, 5), st.sampled_from([0x1000, (1 << 64) - 1])), max_size=12),
    st.binary(max_size=30),
)
def test_any_words_of_gperftools_are_read_or_one_error(words, rest):
    refused_or_read(struct.pack(f"<{3 + len(words)}Q", 0, 3, 0, *words) + rest)


@often
@given(st.lists(st.one_of(st.integers(0, 6), st.sampled_from([1 << 40, (1 << 64) - 1])), max_size=14))
def test_any_words_of_a_stream_are_read_or_one_error(words):
    stream = Records()
    stream.add([3, 0, 1_000])
    try:
        stream.add(words)
    except RecordError as error:
        assert 0 < error.record <= error.offset
    profile = stream.profile()
    assert profile.total("cpu") == profile.total("samples") * 1_000_000


def refused_or_read(raw):
    """Nothing else may happen. What is read can be written and read again."""
    try:
        profile = loading.parse(raw, "x")
    except RemoteprofError as error:
        assert error.message.startswith("x: ")
    else:
        assert loading.parse(written(profile), "x") == profile
