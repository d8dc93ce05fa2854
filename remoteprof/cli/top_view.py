"""What `top` shows: a window and how it is looked at, as lines of a screen of any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import set_cell_size
from rich.text import Text

from remoteprof.profile.activity import FunctionLoad, ThreadLoad, functions, merged, threads
from remoteprof.text import base_name, printable

if TYPE_CHECKING:
    from remoteprof.live import Window
    from remoteprof.profile.identity import FunctionId

ORDERS: dict[str, tuple[str, Callable[[FunctionLoad], tuple[int, int]]]] = {
    "o": ("own", lambda row: (row.own, row.total)),
    "t": ("total", lambda row: (row.total, row.own)),
    "w": ("wall", lambda row: (row.wall, row.own)),
    "g": ("gil", lambda row: (row.gil, row.own)),
}
"""Key → (column, what it sorts by)."""
ONCE_ROWS = 20
"""Most functions, and threads, of one printed frame."""
WIDE = 60
"""Columns below which only the most needed is shown."""
VERY_WIDE = 120
"""Columns from which on files have their whole path."""
FEWEST_ROWS_WITH_THREADS = 8
KEYS = "Enter stacks  / filter  o t w g sort  p pause  s save  ? help  q quit"
HELP = """\
up, down, page up, page down   choose a function
Enter                          the merged stacks through it; Enter or Esc: back
/                              show only functions with this text; Esc: all
o  t  w  g                     sort by own CPU, total CPU, wall or GIL time
p                              pause: the process is left alone
s                              save what the last 60 windows showed as a profile
q, Ctrl-C                      end

OWN    CPU time of the function itself, 100 % = a core all the time
TOTAL  the same with all that it calls
WALL   time in which threads were in it, 100 % = one thread all the time
GIL    time in which it, or what it calls, held the GIL""".splitlines()


@dataclass(slots=True)
class View:
    """How a window is looked at."""

    order: str = "o"
    filter: str = ""
    typing: bool = False
    """The filter is being typed."""
    paused: bool = False
    help: bool = False
    message: str = ""
    chosen: FunctionId | None = None
    """The function that the bar is on; None = the first."""
    stacks_of: FunctionId | None = None
    """The function whose stacks are shown."""
    scrolled: int = 0

    def rows(self, window: Window) -> list[FunctionLoad]:
        """The functions that the filter lets through, in order."""
        text = self.filter.lower()
        found = [row for row in functions(window.profile) if text in f"{row.function.name} {row.function.file}".lower()]
        value = ORDERS[self.order][1]
        return sorted(found, key=lambda row: (*(-one for one in value(row)), row.function))

    def place(self, rows: Sequence[FunctionLoad]) -> int:
        """Where the bar is."""
        return next((index for index, row in enumerate(rows) if row.function == self.chosen), 0)

    def move(self, rows: Sequence[FunctionLoad], by: int) -> None:
        """Moves the bar, or what is scrolled."""
        if self.stacks_of is not None:
            self.scrolled = max(0, self.scrolled + by)
        elif rows:
            self.chosen = rows[max(0, min(len(rows) - 1, self.place(rows) + by))].function


class Page:
    """A screen of `width` by `height` in the making; `height` 0 = as long as a printed frame is."""

    def __init__(self, view: View, window: Window | None, width: int, height: int) -> None:
        self._view = view
        self._window = window
        self._width = width
        self._height = height
        self._lines: list[Text] = []

    def text(self) -> Text:
        """All lines."""
        lines = self.lines()
        return Text("\n", no_wrap=True, overflow="crop", end="").join(lines)

    def lines(self) -> list[Text]:
        """The lines, none wider than the screen; as many as it has, or fewer."""
        self._lines = []
        view, window = self._view, self._window
        self._add(self._title(), "bold")
        if view.help:
            self._fill([*(f"note: {note}" for note in self._notes()), *HELP])
        elif window is None:
            self._fill(["waiting for the first samples"])
        elif view.stacks_of is not None:
            self._stacks(window, view.stacks_of)
        else:
            self._tables(window)
        if self._height:
            while len(self._lines) < self._height - 1:
                self._add("")
            del self._lines[self._height - 1 :]
            self._add(self._last(), "dim")
        return self._lines

    def _notes(self) -> list[str]:
        """What is to be said of how the window went."""
        return self._window.profile.notes if self._window is not None else []

    def _last(self) -> str:
        """The line at the bottom."""
        if self._view.typing:
            return f"/{self._view.filter}_"
        return self._view.message or KEYS

    def _title(self) -> str:
        view, window = self._view, self._window
        if window is None:
            return "remoteprof"
        profile = window.profile
        share = 100 / max(profile.duration_ns, 1)
        count = len({(one.pid, one.thread_id) for one in threads(profile)})
        gil = f"GIL {profile.total('gil') * share:.0f} %" if _has_gil(window) else ""
        parts = [
            "paused" if view.paused else "",
            f"{window.process} {profile.stats.get('pid', '')}",
            f"CPU {profile.total('cpu') * share:.0f} %",
            gil,
            f"{count} thread{'s' * (count != 1)}",
            f"by {ORDERS[view.order][0]}",
            f"/{view.filter}" if view.filter and not view.typing else "",
            "notes: ?" if self._notes() and self._height else "",
            window.runtime,
            f"{profile.duration_ns / 1e9:.1f} s at {1e9 / max(profile.period, 1):.0f} Hz",
        ]
        return "  ".join(part for part in parts if part)

    def _tables(self, window: Window) -> None:
        of_threads = threads(window.profile)
        rows = self._view.rows(window)
        if self._height:
            room = self._height - 3  # title, heading, the line at the bottom
            shown = 0
            if self._height >= FEWEST_ROWS_WITH_THREADS:
                shown = min(len(of_threads), max(1, room // 3))
                room -= 1 + shown
        else:
            room, shown = min(len(rows), ONCE_ROWS), min(len(of_threads), ONCE_ROWS)
        self._functions(window, rows, room)
        if shown:
            self._threads(window, of_threads[:shown])

    def _functions(self, window: Window, rows: list[FunctionLoad], room: int) -> None:
        columns = ["OWN", "TOTAL"]
        if self._width >= WIDE:
            columns += ["WALL", "GIL"] if _has_gil(window) else ["WALL"]
        self._add(" " + "".join(f"{name:>7}" for name in columns) + "  FUNCTION", "reverse")
        share = 100 / max(window.profile.duration_ns, 1)
        bar = self._view.place(rows)
        first = max(0, min(bar - room // 2, len(rows) - room))
        until = first + room
        for index, row in enumerate(rows[first:until], first):
            values = {"OWN": row.own, "TOTAL": row.total, "WALL": row.wall, "GIL": row.gil}
            chosen = index == bar and self._height > 0
            numbers = "".join(f"{values[name] * share:>7.1f}" for name in columns)
            name = f"{row.function.name}{_place(row.function, self._width)}"
            self._add(f"{'>' if chosen else ' '}{numbers}  {name}", "bold" if chosen else "")
        if not rows:
            self._add("  no function has this in its name" if self._view.filter else "  nothing was seen")
        for _ in range(room - max(len(rows), 1) if self._height else 1):
            self._add("")

    def _threads(self, window: Window, rows: list[ThreadLoad]) -> None:
        wide = self._width >= WIDE
        gil = wide and _has_gil(window)
        processes = len({row.pid for row in rows}) > 1 or any(row.process for row in rows)
        heading = "     CPU" + ("    GIL" if gil else "") + "  STATE     " + "THREAD  NAME"
        self._add(heading + ("              IN" if wide else ""), "reverse")
        share = 100 / max(window.profile.duration_ns, 1)
        for row in rows:
            numbers = f"{row.cpu * share:>7.1f}" + (f"{row.gil * share:>7.1f}" if gil else "")
            name = f"{row.process or row.pid}/{row.name}" if processes else row.name
            line = f" {numbers}  {row.state:<9} {row.thread_id:>6}  "
            line += set_cell_size(printable(name), 16) + f"  {row.function}" if wide else name
            self._add(line)

    def _stacks(self, window: Window, function: FunctionId) -> None:
        cpu = any(row.function == function and row.total for row in functions(window.profile))
        column = "cpu" if cpu else "wall"
        share = 100 / max(window.profile.duration_ns, 1)
        branches = merged(window.profile, function, column)
        self._add(f"{column.upper():>8}  STACKS THROUGH {function.name}", "reverse")
        room = self._height - 3
        self._view.scrolled = max(0, min(self._view.scrolled, len(branches) - room))
        until = self._view.scrolled + room
        for branch in branches[self._view.scrolled : until]:
            indent = "  " * min(branch.depth, self._width // 8)
            chosen = branch.function == function
            name = f"{branch.function.name}{_place(branch.function, self._width)}"
            self._add(f"{'>' if chosen else ' '}{branch.value * share:>7.1f}  {indent}{name}", "bold" if chosen else "")
        if not branches:
            self._add("  not seen in this window")

    def _fill(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._add(line)

    def _add(self, line: str, style: str = "") -> None:
        self._lines.append(Text(set_cell_size(printable(line), self._width), style=style, no_wrap=True))


def _has_gil(window: Window) -> bool:
    return any(kind.type == "gil" for kind in window.profile.sample_types)


def _place(function: FunctionId, width: int) -> str:
    if not function.file or width < WIDE:
        return ""
    return f" ({function.file if width >= VERY_WIDE else base_name(function.file)})"
