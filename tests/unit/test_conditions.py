"""What a flight recorder keeps, and when its conditions begin to hold."""

from types import SimpleNamespace

import psutil

from remoteprof.cli.flight import Slices
from remoteprof.cli.options import condition
from remoteprof.conditions import Watch
from remoteprof.processes import Window


def window(start, duration, size=0):
    batch = SimpleNamespace(start_ns=start, duration_ns=duration, stack_frames=b"x" * size, rows={"cpu": b""})
    return Window([batch], [start])


def test_old_slices_go():
    slices = Slices(100)
    for start in range(1000, 1200, 10):
        slices.add(window(start, 10))
    assert slices.whole().processes == list(range(1100, 1200, 10)) and slices.dropped == 0
    slices.add(window(5000, 10))
    assert slices.whole().processes == [5000]


def test_a_bound_on_bytes_shortens_the_time():
    slices = Slices(1_000_000, max_bytes=100)
    for start in range(0, 100, 10):
        slices.add(window(start + 1, 10, size=30))
    assert slices.whole().processes == [71, 81, 91] and slices.dropped == 7
    slices.add(window(101, 10, size=1000))
    assert slices.whole().processes == [101], "the newest is always kept"


def test_conditions():
    assert condition("cpu>80%")[1:] == ("cpu", 80.0)
    assert condition("rss > 2GiB")[1:] == ("rss", 2 << 30)


def fake(monkeypatch, processes):
    def process(pid):
        if pid not in processes:
            raise psutil.NoSuchProcess(pid)
        cpu, children, rss = processes[pid]
        return SimpleNamespace(
            cpu_times=lambda: SimpleNamespace(user=cpu, system=0, children_user=children, children_system=0),
            memory_info=lambda: SimpleNamespace(rss=rss),
            create_time=lambda: 1000.0,
        )

    monkeypatch.setattr(psutil, "Process", process)


def test_a_condition_holds_once_until_it_has_fallen(monkeypatch):
    processes = {7: (100.0, 0.0, 1 << 20)}
    fake(monkeypatch, processes)
    watch = Watch([condition("cpu>50%"), condition("rss>2MiB")], tree=False)
    assert watch.risen([7], 10.0) == [], "what was used before is not known to be new"
    used, found = 100.0, []
    for now, spent, rss in ((11, 0.4, 1), (12, 0.6, 1), (13, 0.9, 3), (14, 0.2, 3), (15, 0.7, 1), (15.5, 0, 9)):
        used += spent
        processes[7] = (used, 0.0, rss << 20)
        found.append([text.split()[0] for text in watch.risen([7], now)])
    assert found == [[], ["cpu>50%"], ["rss>2MiB"], [], ["cpu>50%"], []]


def test_the_time_of_a_tree_is_counted_once(monkeypatch):
    processes = {1: (5.0, 0.0, 1), 2: (3.0, 0.0, 1)}
    fake(monkeypatch, processes)
    watch = Watch([condition("cpu>1000%")], tree=True)
    watch.risen([1, 2], 10.0)
    processes[2] = (3.5, 0.0, 1)
    assert watch.measure([1, 2], 1.0)["cpu"] == 50.0
    # It ends 0.1 s later, and its parent waits for it.
    del processes[2]
    processes[1] = (5.0, 3.6, 1)
    assert round(watch.measure([1, 2], 1.0)["cpu"], 6) == 10.0
    assert watch.measure([1, 2], 1.0) == {"cpu": 0.0, "rss": 1}
    # One that had run for long before it was found is no news.
    processes[3] = (500.0, 0.0, 1)
    assert watch.measure([1, 3], 1.0)["cpu"] == 0.0
