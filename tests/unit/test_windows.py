"""When windows end, what their files are called, and what they add up to."""

import threading

import pytest

from remoteprof import stats
from remoteprof.cli.windows import stamp, stamped
from remoteprof.totals import MAX_PROCESSES, MAX_WINDOWS, Totals
from remoteprof.windows import Ends, Worker


def test_windows_end_at_equal_distances_and_when_asked():
    waits = [False]
    ends = Ends(1_000_000_000, lambda: waits[0])
    assert not ends.due(1e12), "before the recording has begun"
    ends.begin()
    start = ends.next - 1
    assert [ends.due(start + at) for at in (0.5, 0.999, 1.001, 1.5, 2.001)] == [False, False, True, False, True]
    ends.ask()
    assert ends.due(start + 2.5) and not ends.due(start + 2.6), "asked for once, ended once"
    waits[0] = True
    assert not ends.due(start + 3.1) and ends.next < start + 3.5, "asked again soon"
    waits[0] = False
    assert ends.due(start + 5.2), "it was longer"
    assert not ends.due(start + 5.9) and ends.due(start + 6.1), "back to its time"


def test_names_sort_by_time_and_keep_their_suffix():
    times = [0, 1, 999_000_000, 1_000_000_000, 1_795_269_600_512_000_000]
    names = [stamp(time) for time in times]
    assert names == sorted(names) and names[-1] == "20261121T140000.512Z"
    for path, form, expected in (
        ("a/app.pb.gz", None, "a/app-T.pb.gz"),
        ("app.speedscope.json", None, "app-T.speedscope.json"),
        ("app.json", "gecko", "app-T.json"),
        ("app", None, "app-T"),
        ("v1.2/app", None, "v1.2/app-T"),
        ("app.html", None, "app-T.html"),
    ):
        assert stamped(path, "T", form) == expected


def test_a_worker_does_things_in_turn_and_hands_errors_on():
    gate, done = threading.Event(), []
    worker = Worker()
    worker.do(gate.wait)
    assert not worker.waiting()
    worker.do(lambda: done.append(1))
    assert worker.waiting()
    gate.set()
    worker.finish()
    assert done == [1] and not worker.waiting()
    worker.do(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        worker.finish()
    worker.finish()


class Part:
    """A window of some processes, as far as the sums go."""

    since_ns = 0
    batches = ()

    def __init__(self, numbers):
        self.numbers = numbers

    def by_number(self):
        parts = {number: {"pid": number, "ticks": 2, "duration_ns": 5} for number in self.numbers}
        return {number: stats.add_up([part]) for number, part in parts.items()}

    def total(self):
        return stats.add_up(self.by_number().values()) | {"duration_ns": 5}


def test_what_is_listed_is_bounded_and_still_adds_up():
    totals = Totals()
    count = MAX_WINDOWS + 7
    for index in range(count):
        part = Part([1, index + 2])
        totals.count(part)
        totals.add(part)["output_bytes"] = 3
    found = totals.stats()
    assert found["ticks"] == 4 * count and found["duration_ns"] == 5 * count and found["output_bytes"] == 3 * count
    assert len(found["windows"]) == MAX_WINDOWS + 1 and found["windows"][0]["folded"] == 7
    for name in ("ticks", "duration_ns", "output_bytes"):
        assert sum(window[name] for window in found["windows"]) == found[name]
    assert len(found["processes"]) == MAX_PROCESSES + 1
    assert sum(one["ticks"] for one in found["processes"]) == found["ticks"]
    [others] = [one for one in found["processes"] if one["pid"] == 0]
    assert others["process"] == "[others]" and others["ticks"] == 2 * (count + 1 - MAX_PROCESSES)
