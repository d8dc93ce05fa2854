"""The stack of a thread as lines of text, with the variables of its frames where they were read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from remoteprof.text import printable

if TYPE_CHECKING:
    from remoteprof.profile.stacks import Frame, ThreadStack
    from remoteprof.profile.variables import FrameVariables

PLAIN_WIDTH = 200
"""Columns of a line about a variable where stdout is no terminal."""
MIN_WIDTH = 40
"""Columns that such a line has at least."""
MAX_NAME = 24
"""Columns to which names are aligned at most."""
_INDENT = " " * 8
_KIND = 8

Paint = Callable[[str, str], str]
"""A text in the style of a name, as a terminal shows it."""

_STYLES = {
    "thread": {"bold": True},
    "function": {"fg": "yellow"},
    "place": {"dim": True},
    "kind": {"dim": True},
    "name": {"fg": "cyan"},
    "missing": {"fg": "red"},
}


def colours() -> Paint:
    """Colours where stdout is a terminal that has them, and NO_COLOR is not set."""
    wanted = _is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if not wanted:
        return lambda text, style: text
    return lambda text, style: click.style(text, **_STYLES[style])  # type: ignore[arg-type]


def columns() -> int:
    """Of the terminal, or of what stands for one."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns if _is_terminal() else PLAIN_WIDTH
    except (OSError, ValueError):
        return PLAIN_WIDTH


def _is_terminal() -> bool:
    try:
        return sys.stdout is not None and sys.stdout.isatty()
    except ValueError:
        return False


def stack_lines(stack: ThreadStack, width: int, paint: Paint) -> list[str]:
    """A line for the thread, one for each frame, those of its variables below it, and an empty one."""
    facts = [fact for fact in (stack.state, "holds the GIL" if stack.holds_gil else "") if fact]
    named = printable(f"thread {stack.thread_id} {stack.name!r}")
    lines = [f"{paint(named, 'thread')}{': ' if facts else ''}{', '.join(facts)}"]
    for frame in stack.frames:
        lines.append(f"    {_frame(frame, paint)}")
        if frame.locals is not None:
            lines += _variables(frame.locals, max(width, MIN_WIDTH), paint)
    if stack.reading is not None:
        lines += [f"    {paint(f'[{shortcoming}]', 'missing')}" for shortcoming in stack.reading.shortcomings]
    return [*lines, ""]


def _frame(frame: Frame, paint: Paint) -> str:
    place = f"{frame.file}:{frame.line}" if frame.line else frame.file or frame.module
    name = paint(printable(frame.function or f"{frame.address:#x}"), "function")
    return f"{name} {paint(printable(f'({place})'), 'place')}" if place else name


def _variables(found: FrameVariables, width: int, paint: Paint) -> list[str]:
    from rich.cells import cell_len, set_cell_size

    widths = [cell_len(variable.name) for variable in found.variables]
    names = max((size for size in widths if size <= MAX_NAME), default=0)
    lines = []
    for variable, size in zip(found.variables, widths, strict=True):
        name = variable.name
        if size < names:
            name = set_cell_size(name, names)
        elif size > width // 2:
            name = _shortened(name, width // 2)
        before = len(_INDENT) + _KIND + 1 + cell_len(name) + 3
        value = _shortened(variable.value, max(width - before, 1))
        lines.append(f"{_INDENT}{paint(f'{variable.kind:<{_KIND}}', 'kind')} {paint(name, 'name')} = {value}")
    if found.left_out:
        lines.append(f"{_INDENT}{paint(f'… {found.left_out} more', 'missing')}")
    return lines


def _shortened(text: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"
