"""`--window`: a file for each window of a recording, while it goes on."""

from __future__ import annotations

import contextlib
import signal
import stat
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remoteprof.cli import warn
from remoteprof.cli.options import Choices
from remoteprof.cli.output import Outputs, report
from remoteprof.cli.signals import handling
from remoteprof.cli.text import say
from remoteprof.errors import OutputError, UsageError
from remoteprof.totals import Totals
from remoteprof.windows import Ends, Worker

if TYPE_CHECKING:
    from remoteprof.processes import Window
    from remoteprof.profile.model import Profile
    from remoteprof.recording import Recording
    from remoteprof.session import Session

MIN_WINDOW = 100_000_000
"""Nanoseconds; a shorter window is over before it is written."""


def stamp(start_ns: int) -> str:
    """A time as a part of file names that sort by it: 20261121T140000.000Z."""
    seconds, rest = divmod(start_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y%m%dT%H%M%S}.{rest // 1_000_000:03d}Z"


def stamped(path: str, text: str, form: str | None) -> str:
    """`path` with `-text` before its suffix."""
    from remoteprof.formats import choose

    suffix = choose(path, form)[1]
    if not path.endswith(suffix):
        suffix = Path(path).suffix
    return f"{path.removesuffix(suffix)}-{text}{suffix}"


class WindowOutputs(Outputs):
    """The outputs of a recording in windows. They are written by a thread; the last one when all is over."""

    def __init__(self, choices: Choices, window_ns: int) -> None:
        """Raises UsageError where files cannot be meant, and what Outputs does."""
        if window_ns < MIN_WINDOW:
            raise UsageError("a window lasts 100 ms at least", "for example --window 60s")
        _check_place(choices.output)
        super().__init__(choices)
        self._worker = Worker()
        self._ends = Ends(window_ns, self._worker.waiting)
        self._totals = Totals()
        self._kept: deque[tuple[dict[str, Any], list[str]]] = deque()
        self._last: tuple[Profile, str] | None = None
        self._rest: Window | None = None
        self._files = self._removed = self._lost = 0

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """SIGUSR1 ends a window."""
        with handling(lambda _: self._ends.ask(), signal.SIGUSR1):
            yield

    def record(
        self,
        session: Session,
        name: str,
        stopping: Callable[[], bool] = lambda: False,
        progress: Callable[[int, float], None] | None = None,
    ) -> None:
        """Writes all windows but the last while the session runs."""
        self.name = name
        self._ends.begin()
        for window in session.windows(stopping, progress, ends=self._ends):
            if session.finished:
                self._rest = window
            else:
                self._worker.do(partial(self._settle, session, window))

    def write(self, session: Session) -> None:
        """Writes what is left, and tells of all on stderr. Raises OutputError if a window could not be written."""
        self._worker.finish()
        if self._rest is None or (session.launched and not self._rest.batches and not self._totals):
            return
        self._settle(session, self._rest)
        stats = self.finish(session, self._totals.stats())
        if not self.choices.quiet and self._last is not None:
            profile, path = self._last
            line = f"{self._files} files written, {self._files - self._removed} kept; the heaviest of the last one:"
            say(*report(profile, stats, path, self.choices.format, [line]))
        if self._lost:
            raise OutputError(f"{self._lost} windows could not be written", "the messages above say why")

    def _settle(self, session: Session, window: Window) -> None:
        recording = session.settle(window)
        entry = self._entry(recording)
        entry["path"] = None
        if not entry["ticks"] and self._last is not None:
            return  # the recording ended together with the window before
        time, path = self._free(self.path(recording), entry["start_ns"])
        paths = [path]
        try:
            profile, entry["output_bytes"] = self.save(recording, path)
            if self.choices.all_output is not None:
                paths += self.save_each(recording, Path(self.choices.all_output), f"-{time}")
        except OutputError as error:
            self._lost += 1
            entry["error"] = error.message
            warn(f"warning: a window was lost: {error.message}", error.hint)
            return
        entry["path"] = path
        self._last = (profile, path)
        self._files += 1
        if self.choices.keep is not None:
            self._kept.append((entry, paths))
            self._remove(self.choices.keep)

    def _entry(self, recording: Recording) -> dict[str, Any]:
        self._totals.count(recording)
        return self._totals.add(recording)

    def _free(self, path: str, start_ns: int) -> tuple[str, str]:
        """The time of a window and its path; another's file, from before the clock was set back, is left alone."""
        while True:
            time = stamp(start_ns)
            name = stamped(path, time, self.choices.format)
            if not Path(name).exists():
                return time, name
            start_ns += 1_000_000

    def _remove(self, keep: int) -> None:
        while len(self._kept) > keep:
            entry, paths = self._kept.popleft()
            entry["removed"] = True
            self._removed += 1
            for path in paths:
                with contextlib.suppress(OSError):
                    Path(path).unlink()


def _check_place(output: str | None) -> None:
    if output == "-":
        raise UsageError("windows are files: stdout cannot take them", "name a file with -o PATH")
    with contextlib.suppress(OSError):
        if output is not None and not stat.S_ISREG(Path(output).stat().st_mode):
            raise UsageError(f"windows are files named after {output}, which is none", "name a file with -o PATH")
