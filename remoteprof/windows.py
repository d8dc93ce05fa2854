"""Windows of a long recording: when they end, and the thread that deals with them while sampling goes on."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable

AGAIN = 0.05
"""Seconds until it is asked again whether the windows before have been dealt with."""
NICE = 19


class Ends:
    """When windows end: at equal distances from the start, and whenever one is asked for. None ends while the ones
    before wait: it goes on for longer then."""

    def __init__(self, period_ns: int, waiting: Callable[[], bool] = lambda: False) -> None:
        """`waiting`: whether another window would have to wait."""
        self._period = period_ns / 1e9
        self._waiting = waiting
        self._asked = False
        self.answered = False
        """Whether the last window ended because that was asked for."""
        self._at = float("inf")
        self.next = self._at
        """When to ask next, on time.monotonic()."""

    def begin(self) -> None:
        """The first window begins now."""
        self._at = self.next = time.monotonic() + self._period

    def ask(self) -> None:
        """The window is to end now. May be called by a signal handler."""
        self._asked = True

    def due(self, now: float) -> bool:
        """Whether the window ends now: then the next one has begun."""
        if not self._asked and now < self._at:
            self.next = self._at
            return False
        if self._waiting():
            self.next = now + AGAIN
            return False
        self.answered, self._asked = self._asked, False
        while self._at <= now:
            self._at += self._period
        self.next = self._at
        return True


class Worker:
    """A thread that does one thing after the other, at the lowest priority. It is there from the first one on."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._given = 0
        self._done = 0
        self._error: BaseException | None = None

    def waiting(self) -> bool:
        """Whether a job waits for another one."""
        return self._given - self._done > 1

    def do(self, job: Callable[[], None]) -> None:
        """Has a job done. Raises what an earlier one has raised."""
        self._raise()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="windows", daemon=True)
            self._thread.start()
        self._given += 1
        self._jobs.put(job)

    def finish(self) -> None:
        """Waits until all is done. Raises what a job has raised."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        self._raise()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            # Linux has a priority for each thread.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BaseException as error:
                self._error = self._error or error
            finally:
                del job
                self._done += 1
