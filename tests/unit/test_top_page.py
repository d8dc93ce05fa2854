"""top: keys, pages of any size, and what a window is made into."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.cells import cell_len

from remoteprof.cli import keys
from remoteprof.cli.top_view import HELP, Page, View
from remoteprof.profile.activity import functions, merged, threads
from remoteprof.profile.build import COUNT, CPU, GIL, WALL
from remoteprof.profile.identity import FunctionId
from remoteprof.profile.model import Function, Label, Line, Location, Profile, Sample

SECOND = 1_000_000_000


def location(name, file=""):
    return Location([Line(Function(name, name, file), 1)])


MAIN, WORK, WAIT, BAD = (
    location("main", "/app/main.py"),
    location("work", "/app/work.py"),
    location("wait", "/app/work.py"),
    location("bad\x1b[2J\r\n名前" * 40, "/app/\x07.py"),
)


def sample(stack, tid, state, samples, cpu, wall, gil):
    labels = (Label("pid", 7), Label("state", state), Label("thread_id", tid), Label("thread_name", f"t\x1b{tid}"))
    return Sample(stack, [samples, cpu, wall, gil], labels)


PROFILE = Profile(
    [COUNT, CPU, WALL, GIL],
    [
        sample((WORK, MAIN), 7, "running", 60, 600, 600, 500),
        sample((WAIT, MAIN), 7, "sleeping", 40, 0, 400, 0),
        # It calls itself: counted once in what it is part of.
        sample((WORK, WORK, MAIN), 8, "running", 10, 100, 100, 0),
        sample((BAD,), 8, "running", 5, 50, 50, 0),
        Sample((), [0, 7, 0, 0], (Label("pid", 7), Label("thread_id", 8))),
    ],
    duration_ns=1000,
    period=SECOND // 100,
)
WINDOW = SimpleNamespace(number=1, profile=PROFILE, process="app\x1b]0;x\x07", runtime="CPython 3.12.1")
WORK_ID = FunctionId("work", "/app/work.py", "")


def test_functions():
    found = {row.function.name: row[1:] for row in functions(PROFILE)}
    assert found["work"] == (700, 700, 700, 500)
    assert found["main"] == (0, 700, 1100, 500)
    assert found["wait"] == (0, 0, 400, 0)
    assert found["[empty]"] == (7, 7, 0, 0)


def test_threads():
    first, second = threads(PROFILE)
    assert (first.thread_id, first.state, first.function, first.cpu, first.wall, first.gil) == (
        7,
        "running",
        "work",
        600,
        1000,
        500,
    )
    assert (second.thread_id, second.cpu, second.function) == (8, 157, "work")


def test_merged_stacks():
    found = [(one.depth, one.function.name, one.value) for one in merged(PROFILE, WORK_ID, "cpu")]
    assert found == [(0, "main", 700), (0, "work", 700), (0, "work", 100)]
    parted = merged(PROFILE, FunctionId("main", "/app/main.py", ""), "wall")
    assert [(one.depth, one.function.name, one.value) for one in parted] == [
        (0, "main", 1100),
        (1, "work", 700),
        (1, "work", 100),
        (1, "wait", 400),
    ]
    assert merged(PROFILE, FunctionId("none", "", ""), "cpu") == []


def test_a_stack_of_any_depth():
    deep = Profile([COUNT, CPU, WALL], [Sample((WORK, *[MAIN] * 5000), [1, 1, 1])], duration_ns=1, period=1)
    assert len(merged(deep, WORK_ID, "cpu")) == 2000


@pytest.mark.parametrize("width, height", [(80, 24), (40, 10), (200, 60), (20, 4), (3, 3), (1, 1), (80, 2), (59, 8)])
@pytest.mark.parametrize("how", [{}, {"help": True}, {"stacks_of": WORK_ID}, {"typing": True, "filter": "wor"}])
def test_a_page_fills_the_screen_and_no_more(width, height, how):
    for window in (None, WINDOW):
        lines = [line.plain for line in Page(View(**how), window, width, height).lines()]
        assert len(lines) == height
        assert {cell_len(line) for line in lines} == {width}
        assert all(line.isprintable() for line in lines)


def test_what_is_shown():
    text = Page(View(), WINDOW, 80, 24).text().plain
    lines = text.splitlines()
    assert lines[2].split() == [">", "70.0", "70.0", "70.0", "50.0", "work", "(work.py)"]
    assert "bad\\x1b[2J" in text
    assert "STACKS THROUGH work" in Page(View(stacks_of=WORK_ID), WINDOW, 80, 24).text().plain
    assert HELP[0] in Page(View(help=True), WINDOW, 80, 24).text().plain
    assert "notes: ?" not in text
    noted = SimpleNamespace(**{**vars(WINDOW), "profile": replace(PROFILE, notes=["the rate was lowered"])})
    assert "notes: ?" in Page(View(), noted, 80, 24).text().plain.splitlines()[0]
    assert "note: the rate was lowered" in Page(View(help=True), noted, 80, 24).text().plain
    assert "no function has this" in Page(View(filter="nothing"), WINDOW, 80, 24).text().plain
    once = [line.plain.rstrip() for line in Page(View(), WINDOW, 1000, 0).lines()]
    assert not any(line.startswith(">") for line in once) and "(/app/work.py)" in once[2]


def test_the_bar_stays_on_its_function_and_in_its_bounds():
    view = View()
    rows = view.rows(WINDOW)
    assert view.place(rows) == 0
    view.move(rows, 100)
    assert view.place(rows) == len(rows) - 1
    chosen = rows[-1].function
    view.order = "w"
    rows = view.rows(WINDOW)
    assert rows[view.place(rows)].function == chosen
    view.move(rows, -100)
    assert view.place(rows) == 0
    view.move([], 1)


def test_keys():
    sent = "q\x1b[A\x1bOB\x1b[5~\r\x7f\x1b[15;2~j\x1bé\x00\x1b["
    assert keys.split(sent) == ["q", "up", "down", "page up", "enter", "backspace", "j", "escape", "é"]
