"""Batches → Profile."""

import pytest

from remoteprof.profile.build import build
from remoteprof.profile.model import Label, Mapping, time_of, untimed
from remoteprof.profile.stacks import thread_stacks
from remoteprof.symbols import Line

VALUES = ("time", "samples", "cpu", "wall", "gil")


def names(sample):
    return [location.lines[0].function.name for location in sample.locations]


def test_columns_labels_and_times(native):
    profile = build([native.batch(7)], 100)
    assert [f"{kind.type}/{kind.unit}" for kind in profile.sample_types] == [
        "samples/count",
        "cpu/nanoseconds",
        "wall/nanoseconds",
        "gil/nanoseconds",
    ]
    assert profile.default_sample_type == "cpu"
    assert (profile.period_type, profile.period) == (("wall", "nanoseconds"), 10_000_000)
    assert (profile.time_ns, profile.duration_ns) == (1_700_000_000_000_000_000, 2_000_000_000)
    work, sleepy, left = profile.samples
    assert names(work) == ["work", "main"]
    assert work.values == [150, 1_500_000_000, 1_500_000_000, 1_400_000_000]
    assert work.labels == (
        Label("pid", 7),
        Label("state", "running"),
        Label("thread_id", 7),
        Label("thread_name", "MainThread"),
    )
    assert names(sleepy)[1:] == ["main"]
    assert sleepy.locations[1] is work.locations[1]
    assert (names(left), left.values[0]) == (["[unsampled]"], 0)
    assert "state" not in [label.key for label in left.labels]
    assert profile.mappings == [Mapping()]


def test_without_a_python_there_is_no_gil_column(native):
    profile = build([native.batch(7, runtime="")], 1000)
    assert len(profile.sample_types) == 3
    assert all(len(sample.values) == 3 for sample in profile.samples)


def test_windows_of_one_process_add_up_and_time_spans_all(native):
    first = native.batch(7)
    second = native.batch(7, start_ns=first.start_ns + 2_000_000_000)
    once, both = build([first], 100), build([first, second], 100)
    assert len(both.samples) == len(once.samples)
    assert [[2 * value for value in sample.values] for sample in once.samples] == [
        sample.values for sample in both.samples
    ]
    assert both.duration_ns == 4_000_000_000
    assert not any(label.key == "process" for sample in both.samples for label in sample.labels)


def test_two_processes_stay_apart_and_are_named(native):
    profile = build([native.batch(7), native.batch(8, process="other")], 100)
    assert {label.value for sample in profile.samples for label in sample.labels if label.key == "process"} == {
        "app",
        "other",
    }
    assert len(profile.samples) == 6
    assert profile.total("samples") == 700


def test_equal_stacks_of_a_batch_fold_unless_a_label_differs(native):
    # Stack 0 and stack 1 hold the same frames in one order, under different indices.
    frames = [*native.FRAMES, native.FRAMES[0]]
    batch = native.batch(7, frames=frames, stack_starts=native.u32(0, 2, 4, 5), stack_frames=native.u32(0, 1, 4, 1, 3))
    assert len(build([batch], 100).samples) == 3  # other threads
    batch.rows["thread"] = native.u32(0, 0, 0)
    assert len(build([batch], 100).samples) == 3  # other states
    batch.rows["state"] = native.u32(1, 1, 0)
    folded, _ = build([batch], 100).samples
    assert folded.values == [350, 1_500_001_000, 3_500_000_000, 1_400_000_000]


def test_samples_with_a_time_stay_apart(native):
    batch = native.batch(7)
    batch.rows.update(thread=native.u32(0, 0, 0), stack=native.u32(0, 0, 0), state=native.u32(1, 1, 1))
    assert len(build([batch], 100).samples) == 1
    batch.rows["time"] = native.u64(5, 9, 5)
    first, second = build([batch], 100).samples
    assert [time_of(sample.labels) for sample in (first, second)] == [5, 9]
    assert first.labels[-1] == Label("time", 5, "unix_nanoseconds")
    assert untimed(first.labels) == untimed(second.labels) == first.labels[:-1]
    assert [first.values[0], second.values[0]] == [150, 200]


def test_a_program_s_own_labels_stand_among_ours(native):
    rows = {**native.batch(7).rows, "thread": native.u32(0, 0, 0), "stack": native.u32(0, 0, 0)}
    rows.update(state=native.u32(0, 0, 0), labels=native.u32(0, 2, 1))
    batch = native.batch(7, rows=rows, labels=[[], [("user", "b")], [("a", ""), ("user", "b")]])
    profile = build([batch], 100)
    keys = [[label.key for label in sample.labels] for sample in profile.samples]
    ours = ["pid", "thread_id", "thread_name"]
    assert keys == [ours, ["a", *ours, "user"], [*ours, "user"]]
    assert profile.samples[1].labels[0] == Label("a", "")


def test_a_stack_without_frames_is_empty_and_kept(native):
    batch = native.batch(7, stack_starts=native.u32(0, 0, 2, 3), stack_frames=native.u32(2, 1, 3))
    profile = build([batch], 100)
    assert names(profile.samples[0]) == ["[empty]"]
    assert profile.total("samples") == 350


def test_one_function_at_two_lines_is_one_function(native):
    frames = [("python", "f", "/a.py", 2, 1, 0, -1), ("python", "f", "/a.py", 3, 1, 0, -1)]
    frames += [("python", "f", "/b.py", 2, 1, 0, -1), ("python", "f", "/a.py", -5, 9, 0, -1)]
    batch = native.batch(7, frames=frames, stack_frames=native.u32(0, 1, 2, 1, 3))
    profile = build([batch], 100)
    assert len(list(profile.functions())) == 3
    assert profile.samples[2].locations[0].lines[0].line == 0


def test_native_frames_have_address_and_mapping_and_flags_say_what_is_known(native):
    frames = [
        ("native", "", "", 0, 0, 0x1234, 0),
        ("native", "", "", 0, 0, 0x5000, 1),
        ("native", "", "", 0, 0, 0x6000, 1),
        ("native", "", "", 0, 0, 0x9999, -1),
    ]
    mappings = [
        native.Mapping(0x1000, 0x2000, "r-xp", 0, "00:01", 1, "/lib/a (deleted)"),
        native.Mapping(0x5000, 0x7000, "r-xp", 0x400, "00:01", 2, "/lib/b"),
        native.Mapping(0x8000, 0x9000, "r-xp", 0, "00:01", 3, "/lib/unsampled"),
    ]
    known = {
        (1, 0x5000): [Line("memcpy", "memcpy", "", 0, 0, 0)],
        (1, 0x6000): [Line("inner()", "_Z5innerv", "main.c", 9, 3, 8), Line("main", "main", "main.c", 5, 2, 1)],
    }
    profile = build([native.batch(7, frames=frames, mappings=mappings)], 100, names=[known])
    a, b, unsampled = profile.mappings
    assert (a.file, a.has_functions, unsampled.has_functions) == ("/lib/a", False, False)
    assert (b.start, b.limit, b.offset) == (0x5000, 0x7000, 0x400)
    assert (b.has_functions, b.has_filenames, b.has_line_numbers, b.has_inline_frames) == (True, False, False, True)
    bare, named = profile.samples[0].locations
    assert (bare.address, bare.mapping, bare.lines) == (0x1234, a, [])
    assert (named.address, named.mapping) == (0x5000, b)
    inner, main = next(p for sample in profile.samples for p in sample.locations if p.address == 0x6000).lines
    assert (inner.function.name, inner.function.system_name, inner.line, inner.column) == ("inner()", "_Z5innerv", 9, 3)
    assert (main.function.start_line, main.line) == (1, 5)
    lost = profile.samples[2].locations[0]
    assert (lost.mapping, lost.address, lost.lines[0].function.name) == (None, 0x9999, "_ExternalCode")


@pytest.mark.parametrize("column, total", [("cpu", 1_500_001_007), ("wall", 3_500_000_000), ("gil", 1_400_000_000)])
def test_sums_are_those_of_the_batch(native, column, total):
    assert build([native.batch(7)], 100).total(column) == total


def test_the_heaviest_functions_are_by_own_value(native):
    profile = build([native.batch(7)], 100)
    assert [(weight.function.name, weight.value) for weight in profile.heaviest(2, "cpu")] == [
        ("work", 1_500_000_000),
        ("sleepy\x1b[31m", 1_000),
    ]
    assert profile.heaviest(5, "nothing") == []


def test_stacks_of_threads_leave_out_what_no_stack_was_seen_of(native):
    main, worker = thread_stacks(native.batch(7))
    assert (main.thread_id, main.state, main.holds_gil) == (7, "running", True)
    assert [frame.function for frame in main.frames] == ["work", "main"]
    assert (worker.name, worker.holds_gil) == ("worker", False)
    assert worker.as_dict()["frames"][1] == {
        "function": "main",
        "file": "/app/main.py",
        "line": 3,
        "address": 0,
        "module": "",
    }


def test_what_a_batch_makes_anew_is_asked_for_once(native):
    """However many threads there are: a batch of the sampler makes these lists at each access."""
    count = 1000
    rows = native.batch(7).rows
    rows = {name: (native.u64 if name in VALUES else native.u32)(*[1] * count) for name in rows}
    rows["thread"], rows["labels"] = native.u32(*range(count)), native.u32(*[0] * count)
    rows["time"] = native.u64(*[0] * count)
    asked = []

    class Asked(type(native.batch(7))):
        def __getattribute__(self, name):
            if name in ("threads", "frames", "mappings", "states", "rows", "labels", "lines"):
                asked.append(name)
            return super().__getattribute__(name)

    batch = Asked(**vars(native.batch(7, rows=rows, threads=[(7 + index, "many") for index in range(count)])))
    asked.clear()
    assert len(build([batch], 100).samples) == count
    assert len(thread_stacks(batch)) == count
    assert max(asked.count(name) for name in asked) < 10
