"""`--last`: a flight recorder. The newest part of a recording is kept in memory, and written when there is a reason."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from remoteprof.cli.options import Choices
from remoteprof.cli.text import say
from remoteprof.cli.windows import MIN_WINDOW, WindowOutputs
from remoteprof.errors import UsageError
from remoteprof.processes import Window
from remoteprof.stats import duration_text

if TYPE_CHECKING:
    from remoteprof.conditions import Watch
    from remoteprof.recording import Recording
    from remoteprof.session import Session

SLICES = 10
"""Parts in which the time that is kept goes on: what is written is up to one of them longer than what was asked for."""
MAX_BYTES = 256 << 20
"""Most bytes of stacks and rows that are kept; beyond it the time is shorter, which is said."""


class Slices:
    """The newest windows: as many as fit into a time, and into a number of bytes."""

    def __init__(self, last_ns: int, max_bytes: int = MAX_BYTES) -> None:
        self._last = last_ns
        self._most = max_bytes
        self._kept: deque[tuple[int, int, Window]] = deque()
        self._bytes = 0
        self.dropped = 0
        """Windows that went for want of room."""

    def add(self, window: Window) -> None:
        """Takes a window in; older ones go."""
        end = max((batch.start_ns + batch.duration_ns for batch in window.batches), default=0)
        size = sum(len(batch.stack_frames) + sum(map(len, batch.rows.values())) for batch in window.batches)
        self._kept.append((end, size, window))
        self._bytes += size
        while self._kept[0][0] <= end - self._last:
            self._drop()
        while self._bytes > self._most and len(self._kept) > 1:
            self._drop()
            self.dropped += 1

    def _drop(self) -> None:
        self._bytes -= self._kept.popleft()[1]

    def whole(self) -> Window:
        """All of them as one."""
        whole = Window()
        for _, _, window in self._kept:
            whole.batches += window.batches
            whole.processes += window.processes
        return whole


class FlightOutputs(WindowOutputs):
    """The outputs of a flight recorder."""

    def __init__(self, choices: Choices, last_ns: int) -> None:
        """Raises UsageError for a time that is too short, and what WindowOutputs does."""
        if last_ns < MIN_WINDOW * SLICES:
            raise UsageError("what is kept is a second at least", "for example --last 60s")
        super().__init__(choices, last_ns // SLICES)
        self._slices = Slices(last_ns)
        self._watch: Watch | None = None

    def record(
        self,
        session: Session,
        name: str,
        stopping: Callable[[], bool] = lambda: False,
        progress: Callable[[int, float], None] | None = None,
    ) -> None:
        """Keeps the newest windows, and writes them whenever that is asked for."""
        self.name = name
        if self.choices.when:
            from remoteprof.conditions import Watch

            self._watch = Watch(self.choices.when, session.options.children)
        self._ends.begin()
        asked = partial(self._stopping, session, stopping)
        for window in session.windows(asked, progress, ends=self._ends):
            self._totals.count(session.settle(window, modules=False))
            self._slices.add(window)
            if session.finished:
                self._rest = self._slices.whole()
            elif self._ends.answered:
                self._worker.do(partial(self._settle, session, self._slices.whole()))

    def _entry(self, recording: Recording) -> dict[str, Any]:
        # What is written may overlap, and most is never written: it was counted as it came.
        if self._slices.dropped:
            recording.notes.append(
                f"there was more than is kept in memory ({MAX_BYTES >> 20} MiB): "
                f"{self._slices.dropped} parts were given up early"
            )
        return self._totals.add(recording)

    def _stopping(self, session: Session, stopping: Callable[[], bool]) -> bool:
        """Looks whether a condition has begun to hold, on the way."""
        if self._watch is not None:
            for found in self._watch.risen(session.pids()):
                self._ends.ask()
                if not self.choices.quiet:
                    say(f"{found}: the last {duration_text(self.choices.last or 0)} are written")
        return stopping()
