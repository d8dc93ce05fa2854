"""Go's record stream → Profile: the rules, their errors, and the bounds."""

import doctest
import gzip
import io
from array import array

import pytest

from remoteprof.errors import RemoteprofError
from remoteprof.formats import profile_pb2 as pb
from remoteprof.modules import Module
from remoteprof.profile import encoder, records
from remoteprof.profile.deck import GOEXIT, Frame
from remoteprof.profile.model import Label, ValueType
from remoteprof.profile.records import RecordError, Records

A1, A2 = 0x400000, 0x7F0000000000
MODULES = [Module(A1, A1 + 0x1000, 0, "/bin/app", "ab12"), Module(A2, A2 + 0x1000, 0x40, "/lib/c.so")]
HEADER = [3, 0, 500]


def record(count, *stack):
    return [3 + len(stack), 0, count, *stack]


def made(*parts, tags=None, **options):
    stream = Records(options.pop("modules", MODULES), options.pop("symbolize", None), **options)
    stream.add([word for part in parts for word in part], tags)
    return stream.profile()


def rows(profile):
    return [
        (sample.values, [location.address for location in sample.locations], dict(label[:2] for label in sample.labels))
        for sample in profile.samples
    ]


def message_of(stream):
    out = io.BytesIO()
    stream.write(out)
    return pb.Profile.FromString(gzip.decompress(out.getvalue()))


def test_the_header_alone_is_an_empty_profile():
    profile = made(HEADER)
    assert profile.period == 2_000_000
    assert profile.sample_types == [ValueType("samples", "count"), ValueType("cpu", "nanoseconds")]
    assert profile.period_type == ValueType("cpu", "nanoseconds")
    assert profile.samples == []


def test_equal_stacks_are_one_sample_in_order_of_first_sight():
    stream = Records(MODULES)
    stream.add([*HEADER, *record(10, A1 + 1, A1 + 2), *record(40, A2 + 1, A2 + 2)])
    stream.add(record(10, A1 + 1, A1 + 2))
    message = message_of(stream)
    assert [(list(row.value), list(row.location_id)) for row in message.sample] == [
        ([20, 40_000_000], [1, 2]),
        ([40, 80_000_000], [3, 4]),
    ]
    assert [(one.id, one.address, one.mapping_id) for one in message.location] == [
        (1, A1, 1),
        (2, A1 + 1, 1),
        (3, A2, 2),
        (4, A2 + 1, 2),
    ]
    assert [row.id for row in message.mapping] == [1, 2]
    assert not any(row.has_functions for row in message.mapping)
    assert not any(len(one.line) for one in message.location)


def test_an_empty_stack_counts():
    assert rows(made(HEADER, record(10))) == [([10, 20_000_000], [], {})]


@pytest.mark.parametrize(
    "words, tags, problem",
    [
        ([], None, "truncated profile: record 0 at word 0"),
        ([3, 0], None, "truncated profile: record 0 at word 0"),
        ([4, 0, 500], None, "malformed profile: record 0 at word 0"),
        ([3, 0, 0], None, "malformed profile: record 0 at word 0"),
        (HEADER, [], "malformed profile: record 0 at word 0"),
        ([3, 0, 1_000_000_001], None, "malformed profile: record 0 at word 0: a rate of 1000000001 Hz"),
        ([*HEADER, *record(1, 5), 3, 0], None, "truncated profile: record 2 at word 7"),
        ([*HEADER, *record(1, 5), 5, 0, 1, 7], None, "truncated profile: record 2 at word 7"),
        # Too short and too long at once: what is checked first is told.
        ([*HEADER, 2, 0], None, "truncated profile: record 1 at word 3"),
        ([*HEADER, *record(1, 5), 2, 0, 1], None, "malformed profile: record 2 at word 7"),
        ([*HEADER, 0, 0, 1], None, "malformed profile: record 1 at word 3"),
        ([*HEADER, *record(1, 5), *record(1, 6)], [None, None], "malformed profile: record 2 at word 7"),
        ([*HEADER, *record(1, 5)], [None] * 3, "mismatched profile records and tags: record 2 at word 7"),
        (HEADER, [None, {"a": "b"}], "mismatched profile records and tags: record 1 at word 3"),
        ([*HEADER, *record((1 << 63) // 2_000_000 + 1, 5)], None, "profile overflow: record 1 at word 3"),
        ([*HEADER, 3, 0, 1 << 64], None, "malformed profile: record 0 at word 0: a word that is no 64-bit number"),
        ([*HEADER, 3, 0, -1], None, "malformed profile: record 0 at word 0: a word that is no 64-bit number"),
    ],
)
def test_each_error_tells_its_place(words, tags, problem):
    stream = Records()
    with pytest.raises(RecordError) as raised:
        stream.add(words, tags)
    assert str(raised.value).startswith(problem)
    assert problem.split(": ")[1].startswith(f"record {raised.value.record} at word {raised.value.offset}")


def test_places_are_counted_over_all_calls():
    stream = Records()
    stream.add([*HEADER, *record(1, 5)])
    stream.add(record(1, 6, 7))
    with pytest.raises(RecordError) as raised:
        stream.add([*record(1, 8), 2, 0, 0])
    assert (raised.value.record, raised.value.offset) == (4, 16)


def test_records_before_a_bad_one_stay():
    stream = Records()
    with pytest.raises(RecordError):
        stream.add([*HEADER, *record(7, 5), 2, 0, 0])
    assert rows(stream.profile()) == [([7, 14_000_000], [4], {})]


def test_a_call_after_a_bad_header_must_bring_one():
    stream = Records()
    for _ in range(2):
        with pytest.raises(RecordError, match="malformed"):
            stream.add(record(1, 5))
    stream.add(HEADER)
    assert stream.profile().period == 2_000_000


def test_no_header_at_all():
    with pytest.raises(RecordError, match="truncated profile: record 0 at word 0"):
        Records().profile()


def test_a_sum_is_never_wrapped():
    stream = Records()
    stream.add([3, 0, 1_000_000_000, *record((1 << 63) - 2, 5), *record(1, 6)])
    with pytest.raises(RecordError, match="profile overflow: record 3 at word 11"):
        stream.add(record(1, 7))
    assert stream.profile().total("cpu") == (1 << 63) - 1


def test_finished_is_finished():
    stream = Records()
    stream.add(HEADER)
    first = stream.profile()
    assert stream.profile() == first
    with pytest.raises(RemoteprofError, match="no records can be added"):
        stream.add(record(1, 5))


def test_lost_samples():
    stream = Records(MODULES)
    stream.add([*HEADER, *record(0, 9), *record(0, 3)], [None, {"a": "b"}, {"a": "b"}])
    assert stream.lost == 12
    profile = stream.profile()
    [sample] = profile.samples
    [location] = sample.locations
    assert (sample.values, location.lines[0].function.name) == ([12, 24_000_000], "lostProfileEvent")
    assert (location.address, location.mapping) == (0, None)
    assert sample.labels == (Label("a", "b"),)


def test_other_zero_counts_are_zeros():
    assert rows(made(HEADER, record(0), record(0, A1 + 1, A1 + 2))) == [
        ([0, 0], [], {}),
        ([0, 0], [A1, A1 + 1], {}),
    ]


def test_labels_tell_samples_apart_by_their_content():
    tags = [None, {"b": "2", "a": "1"}, {"a": "1", "b": "2"}, None, {}, {"a": ""}]
    profile = made(HEADER, *[record(1, A1 + 1)] * 5, tags=tags)
    assert rows(profile) == [
        ([2, 4_000_000], [A1], {"a": "1", "b": "2"}),
        ([2, 4_000_000], [A1], {}),
        ([1, 2_000_000], [A1], {"a": ""}),
    ]
    assert [label.key for label in profile.samples[0].labels] == ["a", "b"]


def test_return_addresses_are_looked_up_where_the_call_is():
    end = A1 + 0x1000
    profile = made(HEADER, record(1, end, end + 1, A1))
    mappings = [location.mapping and location.mapping.file for location in profile.samples[0].locations]
    assert mappings == ["/bin/app", None, None]


def test_where_nothing_is_mapped_one_mapping_takes_all():
    profile = made(HEADER, record(1, 5, 1 << 50), modules=[])
    [mapping] = profile.mappings
    assert (mapping.start, mapping.limit, mapping.offset, mapping.file, mapping.build_id) == (0, 0, 0, "", "")
    assert all(location.mapping is mapping for location in profile.samples[0].locations)


# Symbols: what a program has at each address. main calls b, which calls a; both are inlined into main, where the
# compiler left a no-op for each: three addresses of one function.
ENTRY = A1 + 0x10
LEAF, NOP_B, NOP_MAIN, CALLER = A1 + 0x1E, A1 + 0x1D, A1 + 0x1C, A1 + 0x80
FRAMES = {
    LEAF: [Frame("main.a", "m.go", 5, ENTRY, 5, False)],
    NOP_B: [Frame("main.b", "m.go", 6, ENTRY, 6, False)],
    NOP_MAIN: [Frame("main.main", "m.go", 9, ENTRY, 9)],
    CALLER: [Frame("runtime.main", "proc.go", 250, A1 + 0x70, 140)],
    A1 + 0x90: [Frame(GOEXIT, "asm.s", 1, A1 + 0x90)],
    A1 + 0xA0: [Frame("c", "c.c", 1, 0, 1, False), Frame("d", "c.c", 2, 0), Frame(GOEXIT), Frame("never")],
    A1 + 0xB0: [Frame("main.gen[go.shape.int]", "g.go", 1, A1 + 0xB0)],
    A1 + 0xB8: [Frame("main.gen[go.shape.string]", "g.go", 1, A1 + 0xB8)],
    A1 + 0xC0: [Frame("nofile", "", 0, A1 + 0xC0)],
    A2: [Frame("libc", "l.c", 3, A2)],
}


def symbolize(address):
    return FRAMES.get(address, [])


def symbolized(*stacks, **options):
    return made(HEADER, *(record(1, *(a + 1 for a in stack)) for stack in stacks), symbolize=symbolize, **options)


def shown(profile):
    return [
        [(location.address, [line.function.name for line in location.lines]) for location in sample.locations]
        for sample in profile.samples
    ]


IN_A = (LEAF, ["main.a", "main.b", "main.main"])


def test_inlined_calls_become_one_location():
    profile = symbolized([LEAF, NOP_B, NOP_MAIN, CALLER])
    assert shown(profile) == [[IN_A, (CALLER, ["runtime.main"])]]
    lines = profile.samples[0].locations[0].lines
    assert [(line.line, line.function.start_line) for line in lines] == [(5, 5), (6, 6), (9, 9)]


def test_a_known_location_stands_for_all_its_addresses():
    stack = [LEAF, NOP_B, NOP_MAIN, CALLER]
    profile = symbolized(stack, [*stack, *stack])
    assert shown(profile)[1] == [IN_A, (CALLER, ["runtime.main"])] * 2
    assert profile.samples[0].locations[0] is profile.samples[1].locations[0]


def test_a_leaf_in_a_no_op_is_still_an_inlined_caller_elsewhere():
    # The first sample hits b's no-op itself, so that a location begins there.
    profile = symbolized([NOP_B, NOP_MAIN, CALLER], [LEAF, NOP_B, NOP_MAIN, CALLER], [NOP_B, NOP_MAIN])
    in_b = (NOP_B, ["main.b", "main.main"])
    assert shown(profile) == [[in_b, (CALLER, ["runtime.main"])], [IN_A, (CALLER, ["runtime.main"])], [in_b]]


def test_recursion_is_not_inlining():
    profile = symbolized([NOP_MAIN, NOP_MAIN, NOP_MAIN], [NOP_B, NOP_B, NOP_MAIN])
    assert shown(profile) == [
        [(NOP_MAIN, ["main.main"])] * 3,
        [(NOP_B, ["main.b"]), (NOP_B, ["main.b"]), (NOP_MAIN, ["main.main"])],
    ]


def test_what_is_met_again_right_after_it_was_written():
    # The second LEAF is refused by the deck, and is the location that this writes.
    profile = symbolized([CALLER, CALLER])
    assert shown(profile) == [[(CALLER, ["runtime.main"])] * 2]
    assert profile.samples[0].locations[0] is profile.samples[0].locations[1]


def test_functions_without_an_entry_are_not_joined():
    FRAMES[A1 + 0xD0] = [Frame("x", "x.c", 1, 0, 0, False)]
    FRAMES[A1 + 0xD8] = [Frame("y", "x.c", 1, 0, 0, True)]
    assert shown(symbolized([A1 + 0xD0, A1 + 0xD8])) == [[(A1 + 0xD0, ["x"]), (A1 + 0xD8, ["y"])]]


def test_a_real_function_ends_a_location():
    # Two names of one entry, as an alias has them: the first is no inlined call.
    FRAMES[A1 + 0xE0] = [Frame("alias", "x.c", 1, A1 + 0xE0, 1, True)]
    FRAMES[A1 + 0xE8] = [Frame("name", "x.c", 2, A1 + 0xE0, 1, True)]
    assert shown(symbolized([A1 + 0xE0, A1 + 0xE8])) == [[(A1 + 0xE0, ["alias"]), (A1 + 0xE8, ["name"])]]


def test_goexit_is_no_location_and_ends_an_expansion():
    profile = symbolized([CALLER, A1 + 0x90], [A1 + 0x90], [A1 + 0xA0])
    assert shown(profile) == [[(CALLER, ["runtime.main"])], [], [(A1 + 0xA0, ["c", "d", GOEXIT])]]
    assert profile.total("samples") == 3


def test_an_unresolved_address_has_no_line():
    assert shown(symbolized([0x99, CALLER])) == [[(0x99, []), (CALLER, ["runtime.main"])]]


def test_instances_of_a_generic_function_stay_apart():
    stack = [A1 + 0xB0, A1 + 0xB8]
    assert [names for _, names in shown(symbolized(stack))[0]] == [
        ["main.gen[go.shape.int]"],
        ["main.gen[go.shape.string]"],
    ]
    short = symbolized(stack, generics=False)
    assert [names for _, names in shown(short)[0]] == [["main.gen[...]"]] * 2
    assert len(list(short.functions())) == 2


def test_a_stack_cut_within_inlined_calls_gets_them_back():
    def callers(address):
        return {LEAF: [NOP_B + 1, NOP_MAIN + 1], NOP_B: [NOP_MAIN + 1]}.get(address, [])

    profile = symbolized([CALLER, LEAF], [CALLER, NOP_B], [LEAF, NOP_B, NOP_MAIN], callers=callers)
    assert shown(profile) == [
        [(CALLER, ["runtime.main"]), IN_A],
        [(CALLER, ["runtime.main"]), (NOP_B, ["main.b", "main.main"])],
        [IN_A],
    ]


@pytest.mark.parametrize(
    "stacks, modules, expected",
    [
        ([[CALLER, LEAF]], MODULES, [(True, True, True), (False, False, False)]),
        ([[CALLER, 0x400999]], MODULES, [(False, False, False), (False, False, False)]),
        ([[CALLER, A1 + 0xC0]], MODULES, [(False, False, False), (False, False, False)]),
        ([[CALLER], [A2]], MODULES, [(True, True, True), (True, True, True)]),
        ([[]], MODULES, [(False, False, False)] * 2),
        ([[CALLER, A2]], [], [(True, True, True)]),
        ([[CALLER, 0x99]], [], [(False, False, False)]),
    ],
)
def test_what_a_mapping_says_that_was_found(stacks, modules, expected):
    profile = symbolized(*stacks, modules=modules)
    assert [(one.has_functions, one.has_filenames, one.has_line_numbers) for one in profile.mappings] == expected


def test_without_a_symbolizer_nothing_was_looked_up():
    [mapping] = made(HEADER, record(1, 5), modules=[]).mappings
    assert not mapping.has_functions


def test_a_full_store_spills_and_keeps_the_sums():
    stream = Records(MODULES, max_held=2_000)
    stream.add(HEADER)
    for turn in range(5):
        for address in range(100):
            stream.add(array("Q", record(turn + 1, A1 + 1 + address, A1 + 2)))
            assert stream._held <= 2_000
    profile = stream.profile()
    assert profile.total("samples") == 100 * 15
    assert profile.total("cpu") == 100 * 15 * 2_000_000
    assert len(profile.samples) > 100, "it did not spill"
    found = {}
    for values, addresses, _ in rows(profile):
        found[addresses[0]] = found.get(addresses[0], 0) + values[0]
    assert found == {A1 + address: 15 for address in range(100)}
    assert len({id(location) for sample in profile.samples for location in sample.locations}) == 100


def test_output_is_compressed_in_parts_between_messages(monkeypatch):
    written = []
    monkeypatch.setattr(encoder.gzip.GzipFile, "write", lambda self, part: written.append(bytes(part)) or len(part))
    stream = Records(MODULES)
    stream.add([*HEADER, *(word for n in range(5_000) for word in record(1, A1 + 1 + n % 4_000, n + 1))])
    stream.write(io.BytesIO())
    assert len(written) > 20
    assert all(encoder.PART < len(part) < encoder.PART + 200 for part in written[:-1])
    for part in written:
        pb.Profile.FromString(part)  # a cut message would not parse, or not give the same bytes
    message = pb.Profile.FromString(b"".join(written))
    assert len(message.sample) == 5_000


def test_equal_input_gives_equal_bytes():
    outs = []
    for _ in range(2):
        out = io.BytesIO()
        stream = Records(MODULES, symbolize)
        stream.add([*HEADER, *record(1, LEAF + 1)])
        stream.write(out)
        outs.append(out.getvalue())
    assert outs[0] == outs[1]


@pytest.mark.parametrize("bound, words", [("MAX_LOCATIONS", record(1, 1, 2, 3)), ("MAX_STRINGS", record(1, LEAF + 1))])
def test_what_a_profile_holds_is_bounded(monkeypatch, bound, words):
    monkeypatch.setattr(encoder, bound, 2)
    stream = Records(MODULES, symbolize)
    stream.add([*HEADER, *words])
    with pytest.raises(RemoteprofError, match="more than"):
        stream.profile()


def test_the_examples():
    assert doctest.testmod(records).failed == 0
    assert doctest.testmod(records).attempted > 4
