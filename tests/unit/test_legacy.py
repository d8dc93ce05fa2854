"""The CPU profile of gperftools → Profile."""

import gzip
import struct

import pytest

from remoteprof.errors import RemoteprofError
from remoteprof.profile import Profile, legacy
from remoteprof.profile.legacy import Name, is_legacy, parse
from remoteprof.profile.model import ValueType
from remoteprof.profile.ranges import Ranges

A1, A2 = 0x400000, 0x7F000000
MAPS = f"""\
{A1:08x}-{A1 + 0x1000:08x} r-xp 00000000 fc:01 787766                             /bin/gone
{A1 + 0x1000:08x}-{A1 + 0x2000:08x} r--p 00001000 fc:01 787766                             /bin/gone
{A2:08x}-{A2 + 0x1000:08x} r-xp 00000040 fc:01 787767                             /lib/gone with space.so (deleted)
"""
HEADER = [0, 3, 0, 2000, 0]
END = [0, 1, 0]
TWO = [*HEADER, 20, 2, A1, A1 + 2, 40, 2, A2, A2 + 2, *END]
KINDS = ["<Q", ">Q", "<I", ">I"]


def packed(words, kind="<Q", text=""):
    order, letter = kind
    return struct.pack(f"{order}{len(words)}{letter}", *words) + text.encode()


def rows(profile):
    return [(sample.values, [location.address for location in sample.locations]) for sample in profile.samples]


@pytest.mark.parametrize("kind", KINDS)
def test_a_header_and_the_end(kind):
    content = packed([*HEADER, *END], kind)
    assert is_legacy(content)
    profile = parse(content)
    assert (profile.period, profile.samples, profile.time_ns) == (2_000_000, [], 0)
    assert profile.sample_types == [ValueType("samples", "count"), ValueType("cpu", "nanoseconds")]
    assert profile.period_type == ValueType("cpu", "nanoseconds")


@pytest.mark.parametrize("title", ["", "MAPPED_LIBRARIES:\n", "\nMAPPED_LIBRARIES:\n"])
@pytest.mark.parametrize("kind", KINDS)
def test_two_samples(kind, title):
    profile = parse(packed(TWO, kind, title + MAPS))
    assert rows(profile) == [([20, 40_000_000], [A1, A1 + 1]), ([40, 80_000_000], [A2, A2 + 1])]
    assert [(one.start, one.limit, one.offset, one.file) for one in profile.mappings] == [
        (A1, A1 + 0x1000, 0, "/bin/gone"),
        (A2, A2 + 0x1000, 0x40, "/lib/gone with space.so"),
    ]
    assert [location.mapping.file for sample in profile.samples for location in sample.locations] == [
        "/bin/gone",
        "/bin/gone",
        "/lib/gone with space.so",
        "/lib/gone with space.so",
    ]
    assert profile.notes == []


def test_equal_stacks_are_one_sample():
    profile = parse(packed([*HEADER, 1, 1, A1, 2, 1, A2, 5, 1, A1, 3, 0, *END], text=MAPS))
    assert rows(profile) == [([6, 12_000_000], [A1]), ([2, 4_000_000], [A2]), ([3, 6_000_000], [])]


def test_a_return_address_is_looked_up_where_the_call_is():
    end = A1 + 0x1000
    [sample] = parse(packed([*HEADER, 1, 3, end, end, end + 1, *END], text=MAPS)).samples
    assert [location.mapping and location.mapping.file for location in sample.locations] == [None, "/bin/gone", None]


@pytest.mark.parametrize("text", ["", "\n", "MAPPED_LIBRARIES:\n", "\xff\xfe rubbish"])
def test_no_usable_maps_is_a_note(text):
    profile = parse(packed(TWO, text=text))
    [mapping] = profile.mappings
    assert (mapping.start, mapping.limit, mapping.file) == (0, 0, "")
    assert all(location.mapping is mapping for sample in profile.samples for location in sample.locations)
    assert "no usable memory map" in profile.notes[-1]


def test_a_bad_line_of_the_maps_is_skipped_and_counted():
    profile = parse(packed(TWO, text=f"what\n{MAPS}7f-80 r-xp\n"))
    assert [mapping.file for mapping in profile.mappings] == ["/bin/gone", "/lib/gone with space.so"]
    assert profile.notes == ["2 lines of the profile's memory map are none and were skipped"]


def test_endless_maps_are_refused(monkeypatch):
    monkeypatch.setattr(legacy, "MAX_MAPS", 100)
    assert "no usable memory map" in parse(packed(TWO, text=MAPS)).notes[0]


@pytest.mark.parametrize(
    "words, problem",
    [
        ([0, 3, 0, 2000], "truncated profile: 4 words"),
        (HEADER, "truncated profile: record 0 at word 5"),
        ([*HEADER, 1], "truncated profile: record 0 at word 5"),
        ([*HEADER, 1, 3, A1, A1], "truncated profile: record 0 at word 5"),
        ([*HEADER, 1, 1, A1, 1, 1 << 62, A1], "truncated profile: record 1 at word 8"),
        ([*HEADER, 1, 1, A1], "truncated profile: record 1 at word 8"),
        ([0, 3, 0, 0, 0, *END], "malformed profile: a period of 0"),
        ([0, 3, 0, 1 << 63, 0, *END], "malformed profile: a period of"),
        ([*HEADER, 1, 1, A1, 1 << 62, 1, A1, *END], "profile overflow: record 1 at word 8"),
        ([0, 3, 1, 2000, 0, *END], "malformed profile: not a CPU profile"),
    ],
)
def test_each_error_tells_its_place(words, problem):
    with pytest.raises(RemoteprofError) as raised:
        parse(packed(words))
    assert str(raised.value).startswith(problem)


@pytest.mark.parametrize("words", [[1, 1, 5, 1, 1, 6, 1, 1, 7], [1, 3, 5, 7, 9]])
def test_what_a_profile_holds_is_bounded(monkeypatch, words):
    monkeypatch.setattr(legacy, "MAX_DISTINCT", 2)
    with pytest.raises(RemoteprofError, match="more than 2 distinct"):
        parse(packed([*HEADER, *words, *END]))


def test_of_ranges_that_overlap_the_first_counts():
    ranges = Ranges([(10, 20), (15, 30), (5, 11), (30, 40), (7, 7), (0, 10), (50, 45)])
    assert [ranges.find(address) for address in (0, 9, 10, 19, 20, 29, 30, 39, 40, 47, 50)] == [
        5, 5, 0, 0, None, None, 3, 3, None, None, None,
    ]  # fmt: skip


def test_names_are_asked_for_once_an_address():
    asked = []

    def names(mapping, addresses):
        asked.append((mapping.file, list(addresses)))
        return [
            [Name("in", "in", "a.c", 3, 0, 1), Name("out", "out", "a.c", 9, 2, 8)] if address == A1 else []
            for address in addresses
        ]

    profile = parse(packed([*HEADER, 1, 2, A1, A1 + 2, 1, 1, A1, 1, 2, A1 + 1, A1 + 2, *END], text=MAPS), 7, names)
    assert asked == [("/bin/gone", [A1, A1 + 1])]
    lines = profile.samples[1].locations[0].lines
    assert [(line.function.name, line.line, line.column) for line in lines] == [("in", 3, 0), ("out", 9, 2)]
    assert profile.time_ns == 7
    assert not profile.mappings[0].has_functions, "one address has no name"
    profile = parse(packed([*HEADER, 1, 1, A1, *END], text=MAPS), 0, names)
    mapping = profile.mappings[0]
    assert mapping.has_functions and mapping.has_filenames and mapping.has_line_numbers and mapping.has_inline_frames
    assert not profile.mappings[1].has_functions


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_it_is_known_by_its_content(pack, tmp_path):
    (tmp_path / "x.pb.gz").write_bytes(pack(packed(TWO, text=MAPS)))
    assert rows(Profile.load(tmp_path / "x.pb.gz"))[0] == ([20, 40_000_000], [A1, A1 + 1])


def test_a_broken_one_is_one_error(tmp_path):
    (tmp_path / "x.prof").write_bytes(packed(HEADER))
    with pytest.raises(RemoteprofError, match=r"x\.prof: truncated profile"):
        Profile.load(tmp_path / "x.prof")
