"""merge, diff, and parts of profiles."""

import copy

import pandas
import polars
import pytest
from profiles import COUNT, CPU, PERIOD, content, simple

from remoteprof.errors import RemoteprofError, UsageError
from remoteprof.profile import frame
from remoteprof.profile.diff import diff
from remoteprof.profile.merge import merge
from remoteprof.profile.model import BASE, Function, Label, Line, Location, Mapping, Profile, Sample, ValueType


def stacks(profile, column=0):
    return {
        " ".join(location.lines[0].function.name if location.lines else "." for location in sample.locations): (
            sample.values[column]
        )
        for sample in profile.samples
    }


def test_equal_stacks_are_added_up():
    made = simple({"a main": 1, "b main": 2}).merge(simple({"b main": 3, "c": 4}), simple({"c": 5}))
    assert stacks(made) == {"a main": 1, "b main": 5, "c": 9}
    assert len(made.mappings) == 1 and len(list(made.functions())) == 4


def test_labels_tell_samples_apart():
    one, two = Label("thread", "1"), Label("thread", "2")
    made = simple({("a", one): 1, ("a", two): 2}).merge(simple({("a", two): 3, "a": 4}))
    assert {sample.labels: sample.values[0] for sample in made.samples} == {(one,): 1, (two,): 5, (): 4}


def test_a_module_is_known_by_its_build_id_wherever_it_is():
    made = merge([simple({"a .": 1}, "ab", 0x5000), simple({"a .": 2}, "ab", 0x3000)])
    assert stacks(made) == {"a .": 3}
    [mapping] = made.mappings
    assert (mapping.start, mapping.limit) == (0x3000, 0x4000)
    assert [location.address for location in made.samples[0].locations] == [0x3610, 0x32E0]


@pytest.mark.parametrize("ids", [("ab", "cd"), ("ab", ""), ("", "")])
def test_an_address_alone_is_no_identity(ids):
    made = merge([simple({".": 1}, ids[0], 0x5000), simple({".": 2}, ids[1], 0x3000)])
    assert [sample.values[0] for sample in made.samples] == [1, 2]
    assert len(made.mappings) == 2


@pytest.mark.parametrize(
    "found, expected",
    [(([True], [True]), True), (([True], [False]), False), (([True], None), True), ((None, None), False)],
)
def test_what_a_mapping_says_holds_for_all_of_it(found, expected):
    parts = []
    for flags in found:
        part = simple({"a": 1} if flags else {})
        if flags:
            part.mappings[0].has_functions = flags[0]
        parts.append(part)
    for order in (parts, parts[::-1]):
        assert merge(order).mappings[0].has_functions is expected


def test_the_head_of_a_sum():
    one = simple({}, time_ns=500, duration_ns=7, comments=["a", "b"], doc_url="x")
    two = simple({}, time_ns=0, duration_ns=5, comments=["b", "c"])
    made = merge([one, two, simple({}, time_ns=400)])
    assert (made.time_ns, made.duration_ns, made.comments, made.doc_url) == (400, 12, ["a", "b", "c"], "x")
    assert (made.period, made.period_type, made.default_sample_type) == (PERIOD, CPU, "cpu")


def test_columns_may_stand_in_another_order():
    other = simple({"a": 1})
    other.sample_types = [CPU, COUNT]
    other.samples[0].values.reverse()
    assert merge([simple({"a": 2}), other]).samples[0].values == [3, 3 * PERIOD]


@pytest.mark.parametrize(
    "change, problem",
    [
        (
            {"sample_types": [COUNT, ValueType("wall", "nanoseconds")]},
            "different sample types: samples/count, cpu/nano",
        ),
        ({"sample_types": [COUNT, ValueType("cpu", "microseconds")]}, "different sample types"),
        ({"period": 1_000_000}, "different periods: 10000000 and 1000000 nanoseconds"),
        ({"period_type": ValueType("space", "bytes")}, "different period types: cpu/nanoseconds, and space/bytes"),
    ],
)
def test_unlike_profiles_have_no_sum(change, problem):
    with pytest.raises(UsageError, match=problem):
        merge([simple({"a": 1}, period=0), simple({"a": 1}), simple({"a": 1}, **change)])


def test_nothing_has_no_sum():
    with pytest.raises(UsageError, match="no profile"):
        merge([])


def test_a_sum_is_never_wrapped():
    big = simple({"a": (1 << 63) - 1}, period=1)
    with pytest.raises(RemoteprofError, match="64 bits"):
        merge([big, simple({"a": 1}, period=1)])


BEFORE = {"a main": 60, "b main": 40, "same": 100}
AFTER = {"a main": 90, "b main": 40, "c b main": 10, "same": 100}


def test_what_changed():
    found = diff(simple(BEFORE), simple(AFTER), "samples")
    assert (found.base_total, found.new_total, found.notes) == (200, 240, [])
    assert [(one.function.name, one.flat, one.cumulative) for one in found.changes] == [
        ("a", 30, 30),
        ("c", 10, 10),
        ("main", 0, 40),
        ("b", 0, 10),
    ]
    first = found.changes[0]
    assert (first.base_flat, first.new_flat, first.base_cumulative, first.new_cumulative) == (60, 90, 60, 90)
    assert (first.base_flat_share, first.new_flat_share) == (0.3, 0.375)
    assert [one.function.name for one in found.by_cumulative()] == ["main", "a", "c", "b"]
    gone = diff(simple(AFTER), simple(BEFORE), "samples")
    assert [(one.function.name, one.flat) for one in gone.changes][:2] == [("a", -30), ("c", -10)]


def test_recursion_counts_once():
    [change, _] = diff(simple({"f f main": 5}), simple({"f f main": 7}), "samples").changes
    assert (change.function.name, change.flat, change.cumulative) == ("f", 2, 2)


def test_where_it_is_mapped_makes_no_change():
    assert diff(simple(BEFORE, "ab", 0x5000), simple(BEFORE, "ab", 0x3000)).changes == []


def test_a_function_is_known_again_in_another_build():
    [change] = diff(simple({"a": 1}, "ab"), simple({"a": 3}, "cd"), "samples").changes
    assert (change.flat, change.function.build_id) == (2, "cd")


def test_two_modules_with_one_name_stay_apart():
    base = simple({"a": 1}, "ab")
    new = merge([simple({"a": 1}, "ab"), simple({"a": 5}, "cd", 0x9000)])
    [change] = diff(base, new, "samples").changes
    assert (change.flat, change.base_flat, change.function.build_id) == (5, 0, "cd")


def test_code_without_a_name_goes_by_its_module():
    [change] = diff(simple({". a": 1}), simple({". a": 2}), "samples").changes[:1]
    assert change.function.name == "[app]"
    nowhere = Profile([COUNT], [Sample((Location(address=5),), [1]), Sample((), [2])], [])
    names = [one.function.name for one in diff(Profile([COUNT]), nowhere).changes]
    assert names == ["[empty]", "[unknown]"]


def test_the_difference_as_a_profile():
    base, new = simple(BEFORE, time_ns=5, comments=["old"]), simple(AFTER, time_ns=9, duration_ns=3, comments=["new"])
    before = copy.deepcopy((base, new))
    made = diff(base, new).profile()
    assert (base, new) == before
    assert {sample.labels for sample in made.samples} == {(), (BASE,)}
    assert sum(sample.values[0] for sample in made.samples if BASE in sample.labels) == -200
    assert made.total("samples") == 40
    assert (made.time_ns, made.duration_ns, made.comments, made.period) == (9, 3, ["new"], PERIOD)


def test_samples_of_another_period_are_scaled_and_it_is_said():
    base = simple({"a": 10, "b": 10}, period=2 * PERIOD)
    found = diff(base, simple({"a": 20, "b": 30}), "samples")
    assert [(one.function.name, one.flat) for one in found.changes] == [("b", 10)]
    assert found.notes == [
        "different periods: samples of the base profile (20000000 nanoseconds each) count 2 times, as those of the new "
        "one (10000000)"
    ]
    assert base.samples[0].values[0] == 10
    # Time is time at any rate.
    [change] = diff(base, simple({"a": 20, "b": 30}), "cpu").changes
    assert change.flat == 10 * PERIOD


def test_unlike_profiles_have_no_difference():
    base = simple({"a": 1})
    base.sample_types = [COUNT, ValueType("cpu", "microseconds")]
    with pytest.raises(UsageError, match="no cpu/nanoseconds in the base profile, which has: samples/count, cpu/micro"):
        diff(base, simple({"a": 1}))
    with pytest.raises(UsageError, match="no sample type 'gil'"):
        diff(base, simple({"a": 1}), "gil")
    assert diff(base, simple({"a": 1}), "samples").notes == ["only one of the profiles has: cpu, cpu"]
    with pytest.raises(UsageError, match="different period types"):
        diff(simple({"a": 1}, period_type=ValueType("space", "bytes")), simple({"a": 1}))


def test_normalized():
    found = diff(simple({"a": 30, "b": 10}), simple({"a": 60, "b": 20}), "samples", normalize=True)
    assert (found.changes, found.notes) == ([], ["normalized: values of the base profile count 2 times"])
    with pytest.raises(UsageError, match="normalize"):
        diff(simple({}), simple({"a": 1}), normalize=True)


def test_the_heaviest():
    rows = simple({"a main": 3, "b main": 1, "main": 4}).top(2)
    assert [(row.function.name, row.flat, row.cumulative) for row in rows] == [
        ("main", 4 * PERIOD, 8 * PERIOD),
        ("a", 3 * PERIOD, 3 * PERIOD),
    ]
    assert (rows[1].flat_share, rows[1].cumulative_share) == (3 / 8, 3 / 8)
    assert [row.flat for row in simple({"a": 3}).top(sample_type="samples")] == [3]
    assert simple({}).top() == []
    with pytest.raises(UsageError, match="no sample type 'wall'") as raised:
        simple({}).top(1, "wall")
    assert raised.value.hint == "this profile has: samples, cpu"


def test_an_inlined_call_is_a_function_too():
    inlined = Location([Line(Function("in")), Line(Function("out"))])
    rows = Profile([COUNT], [Sample((inlined,), [2])]).top()
    assert [(row.function.name, row.flat, row.cumulative) for row in rows] == [("in", 2, 2), ("out", 0, 2)]


def test_a_function_counts_once_in_a_stack_however_often_it_is_there():
    again, large = Location([Line(Function("a"), 1)]), 1 << 62
    stack = (again, Location([Line(Function("b")), Line(Function("a"), 2)]), again, Location([Line(Function("main"))]))
    empty = Location([Line(Function("[empty]"))])
    samples = [Sample(stack, [large]), Sample(stack[1:], [large]), Sample(stack[::-1], [-3]), Sample(stack, [0])]
    rows = Profile([COUNT], [*samples, Sample((), [7]), Sample((), [-2]), Sample((empty, stack[3]), [9])]).top()
    assert {row.function.name: (row.flat, row.cumulative) for row in rows} == {
        "a": (large, 2 * large - 3),
        "b": (large, 2 * large - 3),
        "main": (-3, 2 * large - 3 + 9),
        "[empty]": (14, 14),
    }
    assert Profile([COUNT], [Sample((stack[3],), [0])]).top() == []


def test_parts_of_a_profile():
    thread = Label("thread", "worker-1")
    profile = simple({"a main": 1, "b main": 2, ("c", thread): 4, ("c", Label("id", 7)): 8})
    assert stacks(profile.focus("^(a|b)$")) == {"a main": 1, "b main": 2}
    assert stacks(profile.focus(r"b\.c")) == {"b main": 2}
    assert stacks(profile.focus("/bin/app")) == stacks(profile)
    assert stacks(profile.ignore("main")) == {"c": 8}
    assert profile.ignore("main").total("samples") == 12
    assert profile.focus("a").total("cpu") + profile.ignore("a").total("cpu") == profile.total("cpu")
    assert profile.tagged("thread", "^worker").total("samples") == 4
    assert profile.tagged("id", 7).total("samples") == profile.tagged("id", "7").total("samples") == 8
    assert profile.tagged("id", 8).total("samples") == 0
    assert profile.tagged("thread").total("samples") == 4
    assert profile.filter(lambda sample: sample.values[0] > 2).total("samples") == 12
    assert profile.focus("a").period == PERIOD
    with pytest.raises(UsageError, match="is not a regular expression"):
        profile.focus("(")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_data_frame(library):
    profile = simple(
        {("a main", Label("thread", "x"), Label("n", 1)): 1, ("b", Label("thread", 2), Label("cpu", 3)): 2}
    )
    profile.samples.append(Sample((), [5, 0]))
    made = profile.to_dataframe(library)
    assert isinstance(made, {"pandas": pandas, "polars": polars}[library].DataFrame)
    assert list(made.columns) == ["function", "file", "line", "stack", "samples", "cpu", "thread", "n", "cpu_"]
    assert list(made["function"]) == ["a", "b", "[empty]"]
    assert list(made["samples"]) == [1, 2, 5]
    assert [list(stack) for stack in made["stack"]] == [["a", "main"], ["b"], ["[empty]"]]
    assert list(made["thread"])[:2] == ["x", "2"]
    assert list(made["line"]) == [2, 2, 0]
    assert made["cpu"].sum() == profile.total("cpu")


def test_a_data_frame_needs_a_library(monkeypatch):
    assert isinstance(simple({}).to_dataframe(), pandas.DataFrame)
    with pytest.raises(UsageError, match="unknown library 'numpy'"):
        simple({}).to_dataframe("numpy")

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(frame, "import_module", missing)
    with pytest.raises(UsageError, match="neither pandas nor polars is installed"):
        simple({}).to_dataframe()
    with pytest.raises(UsageError, match="polars is not installed"):
        simple({}).to_dataframe("polars")


def test_a_sum_of_one_is_itself():
    profile = simple(AFTER, "ab")
    assert content(merge([profile])) == content(profile)
    assert merge([profile]).mappings[0] == Mapping(0x1000, 0x2000, 0, "/bin/app", "ab")
