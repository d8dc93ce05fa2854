"""Heap, block and mutex profiles of Go programs, from readings that are made up."""

from __future__ import annotations

import dataclasses

import pytest

from remoteprof.errors import NothingToProfile, RemoteprofError
from remoteprof.golang.buckets import KINDS, Counted, Reader, Reading, scaled
from remoteprof.golang.stacks import Frame
from remoteprof.modules import Module


class Modules:
    """Knows one range, and from the second look on another."""

    def __init__(self) -> None:
        self.looks = 0

    def look(self) -> None:
        self.looks += 1

    def modules(self) -> list[Module]:
        known = [Module(0x1000, 0x2000, 0, "/app", "b1"), Module(0x8000, 0x9000, 0, "/lib", "b2")]
        return known if self.looks else known[:1]


def reader(kind: str) -> Reader:
    one = object.__new__(Reader)
    one.pid, one.process, one.kind, one._modules = 7, "app", KINDS[kind], Modules()  # type: ignore[assignment]
    return one


def frame(name: str, address: int = 0x1010) -> Frame:
    return Frame(name, "/app.go" if name else "", 3, 1, address, 0x1000, False, True, False)


def reading(counted: dict[int, tuple[int, int, int, int]], *, rate: int = 1, time_ns: int = 5) -> Reading:
    rows = {bucket: Counted((frame(f"main.f{bucket}"),), values) for bucket, values in counted.items()}
    return Reading("go1.26.8", rows, rate, 1, 2_000_000_000, (1, 2), [], time_ns)


def test_what_was_sampled_stands_for_what_was_not() -> None:
    assert scaled(0, 0, 512) == scaled(3, 0, 512) == (0, 0)
    assert scaled(3, 300, 1) == scaled(3, 300, 0) == scaled(3, 300, -1) == (3, 300)
    # 1 / (1 - 1/e)
    assert scaled(10, 5120, 512) == (15, 8099)
    assert scaled(1, 1 << 30, 512) == (1, 1 << 30)
    assert scaled(1, 1, 1 << 62) == (0, 0)


def test_of_an_interval_the_counts_are_subtracted_and_then_scaled() -> None:
    before = reading({1: (10, 640, 4, 256), 2: (5, 320, 0, 0), 4: (9, 576, 9, 576)}, rate=512)
    after = reading(
        {1: (30, 1920, 20, 1280), 2: (5, 320, 0, 0), 3: (2, 128, 0, 0), 4: (9, 576, 9, 576), 5: (0, 0, 0, 0)},
        rate=512,
        time_ns=30_000_000_005,
    )
    profile = reader("heap").profile(after, before, command="x")
    found = {sample.locations[0].lines[0].function.name: sample.values for sample in profile.samples}
    # Number 2 is only in use, 4 and 5 say nothing.
    assert found == {
        "main.f1": [*scaled(20, 1280, 512), *scaled(10, 640, 512)],
        "main.f2": [0, 0, *scaled(5, 320, 512)],
        "main.f3": [*scaled(2, 128, 512), *scaled(2, 128, 512)],
    }
    assert {sample.labels[0].value for sample in profile.samples} == {64}
    assert (profile.duration_ns, profile.period, profile.default_sample_type) == (30_000_000_000, 512, "inuse_space")


def test_events_are_in_nanoseconds_and_only_grow() -> None:
    before = reading({1: (3, 2000, 0, 0), 2: (9, 9000, 0, 0), 3: (1, 10, 0, 0)})
    after = reading({1: (5, 3001, 0, 0), 2: (1, 100, 0, 0), 3: (1, 10, 0, 0)})
    profile = reader("block").profile(after, before, command="x")
    assert [sample.values for sample in profile.samples] == [[2, 500]]
    assert profile.samples[0].labels == () and profile.default_sample_type == ""
    # Before Go 1.20 what is written is multiplied with the rate of the moment.
    old = dataclasses.replace(after, factor=10)
    values = [sample.values for sample in reader("mutex").profile(old, command="x").samples]
    assert values == [[50, 15005], [10, 500], [10, 50]]


def test_nothing_is_never_written() -> None:
    for kind, word in (("heap", "MemProfileRate"), ("block", "block"), ("mutex", "mutex")):
        with pytest.raises(NothingToProfile, match=f"{word}.* is 0"):
            reader(kind).profile(reading({}, rate=0), command="x")
        with pytest.raises(NothingToProfile, match="yet"):
            reader(kind).profile(reading({}), command="x")
        same = reading({1: (1, 64, 1, 64)})
        with pytest.raises(NothingToProfile, match=r"in these 2\.0 s"):
            reader(kind).profile(dataclasses.replace(same, time_ns=2_000_000_005), same, command="x")
    profile = reader("mutex").profile(reading({1: (1, 64, 0, 0)}, rate=0), command="x")
    assert profile.notes == ["mutex profiling is off: its rate is 0 now; what is shown was counted before"]


def test_what_cannot_be_is_one_error() -> None:
    with pytest.raises(RemoteprofError, match="counts that no program has"):
        reader("heap").profile(reading({1: (1 << 53, 1 << 53, 0, 0)}, rate=1 << 48), command="x")
    now = reading({1: (1, 64, 0, 0)})
    with pytest.raises(RemoteprofError, match="started another program"):
        reader("heap").profile(now, dataclasses.replace(now, memory=(1, 3)), command="x")


def test_modules_are_read_again_for_what_was_loaded_since() -> None:
    one, now = reader("heap"), reading({1: (1, 64, 0, 0)})
    profile = one.profile(now, command="x")
    assert [mapping.build_id for mapping in profile.mappings] == ["b1"]
    now.counted[2] = Counted((frame("", 0x8010), frame("main.g")), (1, 64, 0, 0))
    profile = one.profile(now, command="x")
    leaf, caller = profile.samples[1].locations
    # Code of C has an address, and no line.
    assert leaf.lines == [] and leaf.mapping is not None and leaf.mapping.build_id == "b2"
    assert caller.lines[0].function.name == "main.g" and not leaf.mapping.has_functions
