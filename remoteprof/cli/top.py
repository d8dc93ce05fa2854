"""`top`."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from remoteprof.cli import keys
from remoteprof.cli.options import duration, rate
from remoteprof.cli.selecting import takes_process
from remoteprof.cli.signals import HANG_UP, handling, stop_requests
from remoteprof.cli.text import safe_file_name, say
from remoteprof.errors import RemoteprofError
from remoteprof.live import Live
from remoteprof.process import name_of
from remoteprof.session import Options
from remoteprof.sinks.file import writing_stdout

if TYPE_CHECKING:
    from rich.console import Console, ConsoleDimensions

    from remoteprof.live import Window

LATENCY = 0.1
"""Seconds after which a new window, a new size of the terminal, or a signal is seen."""
PLAIN_WIDTH = 1000
"""Columns after which a line is cut that goes to no terminal."""
# Windows stops no program from the keyboard.
_STOPS: tuple[signal.Signals, ...] = () if sys.platform == "win32" else (signal.SIGTSTP,)


@click.command()
@takes_process()
@click.option("-d", "--duration", type=duration, default=1_000_000_000, help="Between two frames.  [default: 1s]")
@click.option("-r", "--rate", type=rate, default=100.0, help="Samples a second and thread.  [default: 100]")
@click.option("--native/--no-native", default=True, help="Native frames too.  [default: on]")
@click.option("--native-all", is_flag=True, help="The interpreter's own machinery too.")
@click.option("--children", is_flag=True, help="Descendants too.")
@click.option("--once", is_flag=True, help="Print one frame and end.")
@click.option("-o", "--output", metavar="PATH", help="Where the key s saves to.  [default: NAME-PID-TIME.pb.gz]")
def top(
    pid: int,
    duration: int,
    rate: float,
    native: bool,
    native_all: bool,
    children: bool,
    once: bool,
    output: str | None,
) -> None:
    """Show live what process PID does: functions by CPU, wall and GIL time, and threads; the key ? tells the others.

    Without a terminal, a frame is printed after each duration until Ctrl-C or the end of the process.
    """
    from rich.console import Console

    options = Options(rate=rate, duration_ns=duration, native=native, native_all=native_all, children=children)
    live = Live(pid, options, shlex.join(["remoteprof", *sys.argv[1:]]))
    console = Console(highlight=False, markup=False, emoji=False)
    if once or not (console.is_terminal and sys.stdin is not None and sys.stdin.isatty()) or console.is_dumb_terminal:
        _print_frames(live, console, once)
    else:
        _Interactive(live, console, output).run()


def _size(console: Console) -> ConsoleDimensions:
    """Of the terminal as it is now. COLUMNS and LINES, which would not change with it, do not count."""
    from rich.console import ConsoleDimensions

    try:
        width, height = os.get_terminal_size(console.file.fileno())
    except (OSError, ValueError):
        width, height = 0, 0
    return ConsoleDimensions(width or 80, height or 24)


def _print_frames(live: Live, console: Console, once: bool) -> None:
    from remoteprof.cli.top_view import Page, View

    plain = not console.is_terminal
    if not plain:
        console.size = _size(console)
    stopped = False
    told: set[str] = set()

    def stop(_: int) -> None:
        nonlocal stopped
        stopped = True
        live.stop()

    with contextlib.closing(live), handling(stop, signal.SIGINT, signal.SIGTERM, HANG_UP):
        while not stopped:
            try:
                window = live.take()
            except RemoteprofError:
                if live.latest is None or not live.has_ended():
                    raise
                say(f"process {live.pid} has ended")
                return
            new = [note for note in window.profile.notes if note not in told]
            told.update(new)
            say(*(f"note: {note}" for note in new))
            with writing_stdout():
                for line in Page(View(), window, PLAIN_WIDTH if plain else _size(console).width, 0).lines():
                    line.rstrip()
                    if plain:
                        click.echo(line.plain)
                    else:
                        console.print(line)
                if not once:
                    click.echo()
            if once:
                return


class _Interactive:
    """The live screen. Whatever happens, the terminal is left as it was."""

    def __init__(self, live: Live, console: Console, output: str | None) -> None:
        from remoteprof.cli.top_view import View

        self._live = live
        self._console = console
        self._output = output
        self._view = View()
        self._name = name_of(live.pid)
        self._suspended = False
        self._window: Window | None = None
        self._shown: object = None
        self._drawn: object = None

    def run(self) -> None:
        """Until q, a signal, or the end of the process. Raises what ends the sampling before that."""
        with stop_requests() as stopping, handling(self._suspend, *_STOPS), self._live:
            ended = False
            while not (ended or stopping()):
                if self._suspended and sys.platform != "win32":
                    self._suspended = False
                    os.kill(os.getpid(), signal.SIGSTOP)
                with self._screen() as pressed:
                    while not (ended or stopping() or self._suspended):
                        ended = self._turn(pressed) or self._live.ended or self._live.failure is not None
        if self._live.failure is not None:
            raise self._live.failure
        if self._live.ended:
            say(f"process {self._live.pid} has ended")

    def _suspend(self, _: int) -> None:
        self._suspended = True

    @contextlib.contextmanager
    def _screen(self) -> Iterator[keys.Keys]:
        """The terminal as ours: another screen, no cursor, keys one by one."""
        with keys.Keys() as pressed, self._console.screen(hide_cursor=True) as screen:
            self._shown = None
            self._show = screen.update
            yield pressed

    def _turn(self, pressed: keys.Keys) -> bool:
        """Shows what is new, and takes what is pressed; whether to end."""
        from remoteprof.cli.top_view import Page

        if not self._view.paused:
            self._window = self._live.latest
        size = self._console.size = _size(self._console)
        number = self._window.number if self._window is not None else 0
        if (number, size, repr(self._view)) != self._shown:
            self._show(Page(self._view, self._window, size.width, size.height).text())
            # Drawn again soon after a change of size: the terminal may have moved lines at the same time.
            settled = size == self._drawn
            self._drawn = size
            self._shown = (number, size, repr(self._view)) if settled else None
        return any([self._press(key) for key in pressed.read(LATENCY)])

    def _press(self, key: str) -> bool:
        """Does what a key asks for; whether that is to end."""
        view = self._view
        view.message = ""
        if key == keys.HANGUP:
            return True
        if view.typing:
            self._type(key)
        elif view.help:
            view.help = False
        elif key == "q" and view.stacks_of is None:
            return True
        elif view.stacks_of is not None and key in (keys.ENTER, keys.ESCAPE, "q"):
            view.stacks_of = None
        else:
            self._do(key)
        return False

    def _type(self, key: str) -> None:
        view = self._view
        if key in (keys.ENTER, keys.ESCAPE):
            view.typing = False
            view.filter = "" if key == keys.ESCAPE else view.filter
        elif key == keys.BACKSPACE:
            view.filter = view.filter[:-1]
        elif len(key) == 1:
            view.filter += key

    def _do(self, key: str) -> None:
        from remoteprof.cli.top_view import ORDERS

        view, window = self._view, self._window
        page = max(1, _size(self._console).height // 2)
        steps = {keys.UP: -1, "k": -1, keys.DOWN: 1, "j": 1, keys.PAGE_UP: -page, keys.PAGE_DOWN: page}
        steps |= {keys.HOME: -(1 << 30), keys.END: 1 << 30}
        rows = view.rows(window) if window is not None else []
        if key in steps:
            view.move(rows, steps[key])
        elif key in ORDERS:
            view.order = key
        elif key == "/":
            view.typing, view.filter = True, ""
        elif key == keys.ESCAPE:
            view.filter = ""
        elif key in ("p", " "):
            view.paused = not view.paused
            self._live.pause(view.paused)
        elif key == keys.ENTER and rows:
            view.stacks_of, view.scrolled = rows[view.place(rows)].function, 0
        elif key == "?":
            view.help = True
        elif key == "s":
            view.message = self._save()

    def _save(self) -> str:
        """Saves the windows that are kept; what is to be said of it."""
        from remoteprof.formats import save

        moment = time.strftime("%H%M%S")
        path = self._output or f"{safe_file_name(self._name)}-{self._live.pid}-{moment}.pb.gz"
        try:
            save(self._live.profile(), path, None)
        except RemoteprofError as error:
            return f"not saved: {error.message}"
        return f"saved: {path}"
