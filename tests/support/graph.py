"""The flame graph's page: a small profile of known sums, what can be done on the page, and what it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from remoteprof.profile.model import Function, Label, Line, Location, Mapping, Profile, Sample
from support.browser import Opened
from support.generated import COUNT, CPU, WALL

Show = Callable[..., Any]
"""The fixture `show`."""

ROW = 18
"""Pixels of a row."""
MS = 10**6
LIBRARY = Mapping(0, 1 << 40, 0, "/usr/lib/libwork.so")
MAIN = (Label("pid", 7), Label("process", "server"), Label("state", "running"))
WORKER = (Label("pid", 8), Label("process", "worker"), Label("state", "sleeping"))
FIRST, SECOND = (
    (Label("thread_id", 70), Label("thread_name", "one")),
    (Label("thread_id", 80), Label("thread_name", "two")),
)
Row = tuple[list[str], int, int, tuple[Label, ...]]
# Root first; cpu, wall in ms; labels. In all: cpu 100 ms, wall 400 ms.
ROWS: list[Row] = [
    (["main", "serve", "parse"], 40, 50, MAIN + FIRST),
    (["main", "serve", "parse", "parse"], 10, 10, MAIN + FIRST),
    (["main", "serve"], 5, 40, MAIN + FIRST),
    (["main", "store"], 25, 100, MAIN + SECOND),
    (["loop", "parse"], 15, 100, WORKER + SECOND),
    ([], 5, 100, WORKER + SECOND),
]


def profile_of(rows: Sequence[Row]) -> Profile:
    known: dict[str, Location] = {}

    def place(name: str) -> Location:
        if name not in known:
            library = LIBRARY if name in ("parse", "store") else None
            line = Line(Function(name, name, f"/app/{name}.py", 10), 12)
            known[name] = Location([line], library)
        return known[name]

    samples = [
        Sample(tuple(place(name) for name in reversed(names)), [1, cpu * MS, wall * MS], labels)
        for names, cpu, wall, labels in rows
    ]
    comments = ["command: remoteprof attach 7", "host: <b>test</b>"]
    return Profile([COUNT, CPU, WALL], samples, [LIBRARY], "cpu", WALL, 10 * MS, comments=comments)


def press(seen: Opened, *keys: str) -> None:
    for key in keys:
        seen.page.keyboard.press(key)
    seen.settle()


def click_box(seen: Opened, share: float, depth: int) -> None:
    """Clicks a box of an icicle by where it stands: its share of the width, its depth."""
    box = seen.page.locator("#stage").bounding_box()
    assert box is not None
    seen.page.mouse.click(box["x"] + share * box["width"], box["y"] + depth * ROW + ROW / 2)
    seen.settle()


def current(seen: Opened) -> str:
    """What a screen reader says of the current box."""
    identity = seen.page.locator("#stage").get_attribute("aria-activedescendant")
    return seen.page.locator(f"#{identity}").get_attribute("aria-label") or ""


def place(seen: Opened) -> tuple[float, float, float]:
    """Left edge, width and top of the current box, as shares of the graph, and in pixels."""
    box, stage = (seen.page.locator(name).bounding_box() for name in ("#current", "#stage"))
    assert box and stage
    return (box["x"] - stage["x"]) / stage["width"], box["width"] / stage["width"], box["y"] - stage["y"]


def colour_at(seen: Opened, share: float, depth: int) -> tuple[int, int, int]:
    """The colour of a box on white, at its lower left corner, where no text is."""
    found = seen.page.evaluate(
        """([share, y]) => {
            const canvas = document.querySelector("#canvas");
            const x = Math.round(share * canvas.width) + 1;
            const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
            pixel.drawImage(canvas, x, y * devicePixelRatio, 1, 1, 0, 0, 1, 1);
            const { data: [, , , drawn] } = pixel.getImageData(0, 0, 1, 1);
            pixel.globalCompositeOperation = "destination-over";
            pixel.fillStyle = "white";
            pixel.fillRect(0, 0, 1, 1);
            return [drawn, ...pixel.getImageData(0, 0, 1, 1).data];
        }""",
        [share, depth * ROW + ROW - 3],
    )
    assert found[0] > 0, "nothing is drawn there"
    return found[1], found[2], found[3]
