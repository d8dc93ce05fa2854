"""A process watched as it runs: the windows of one recording, of which none is kept for long."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING

from remoteprof.errors import ProcessNotFound, RemoteprofError, SamplerDied
from remoteprof.session import Options, Session
from remoteprof.windows import Ends

if sys.platform == "win32":
    from remoteprof.nt.process import Running

if TYPE_CHECKING:
    import psutil

    from remoteprof import processes
    from remoteprof.profile.model import Profile

KEPT = 60
"""Windows that are kept, to be saved together."""
_PATIENCE = 1.0
"""Seconds that the thread gets to end, while names are still being found; the sampler ends with the process."""


@dataclass(frozen=True, slots=True)
class Window:
    """What was seen in one window. `number` counts from 1."""

    number: int
    profile: Profile
    process: str
    runtime: str


class Live:
    """The windows of process `pid`, taken in by a thread of its own; a context manager.

    That thread finds names and adds up while the sampler process goes on: no tick falls between two windows.
    """

    def __init__(self, pid: int, options: Options, command: str) -> None:
        """`options.duration_ns` is the length of a window. Raises ProcessNotFound."""
        self.pid = pid
        self.options = replace(options, duration_ns=0)
        self._period_ns = options.duration_ns
        self.ended = False
        """Whether the process has ended: there will be no more windows."""
        self.failure: Exception | None = None
        """Why there will be no more windows, where that is not the end of the process."""
        self._command = command
        self._windows: deque[Window] = deque(maxlen=KEPT)
        self._count = 0
        self._closing = threading.Event()
        self._going = threading.Event()
        self._going.set()
        self._thread: threading.Thread | None = None
        self._session: Session | None = None
        self._recorded: Iterator[processes.Window] = iter(())
        self._process = _process(pid)

    def __enter__(self) -> Live:
        """Begins to record."""
        self._thread = threading.Thread(target=self._work, name="remoteprof windows", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._going.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE)

    @property
    def latest(self) -> Window | None:
        """The newest window."""
        return self._windows[-1] if self._windows else None

    def pause(self, paused: bool) -> None:
        """While it is paused nothing is recorded: the process is left alone."""
        if paused:
            self._going.clear()
        else:
            self._going.set()

    def profile(self) -> Profile:
        """The sum of the windows that are kept. Raises RemoteprofError where there are none."""
        from remoteprof.profile.merge import merge

        windows = list(self._windows)
        if not windows:
            raise RemoteprofError("nothing was seen yet")
        return merge([window.profile for window in windows])

    def take(self) -> Window:
        """Waits for the end of a window; the next one has begun then. Raises as record(), and ProcessNotFound where the
        process has ended."""
        taken = next(self._recorded, None)
        session = self._session
        if taken is None or session is None:
            session = self._begin()
            taken = next(self._recorded)
        recording = session.settle(taken)
        batch = recording.batches[0]
        self._count += 1
        window = Window(self._count, recording.profile(self._command), batch.process, batch.runtime)
        self._windows.append(window)
        return window

    def _begin(self) -> Session:
        """Records from now on, until it is to stop, or the process ends."""
        if not self._process.is_running():
            raise ProcessNotFound(f"process {self.pid} has ended")
        session = self._session = Session(self.options, after=self._session)
        session.attach(self.pid)
        ends = Ends(self._period_ns)
        session.start()
        ends.begin()
        self._recorded = session.windows(lambda: self._closing.is_set() or not self._going.is_set(), ends=ends)
        return session

    def close(self) -> None:
        """Ends the sampler process of take()."""
        if self._session is not None:
            self._session.close()

    def stop(self) -> None:
        """Ends the recording, and the window that is under way."""
        self._closing.set()

    def _work(self) -> None:
        try:
            while self._going.wait() and not self._closing.is_set():
                self.take()
        except RemoteprofError as error:
            if self.has_ended() and not isinstance(error, SamplerDied) and self._windows:
                self.ended = True
            else:
                self.failure = type(error)(error.message, error.hint)
        except Exception as error:  # of a thread: whoever watches it raises it
            self.failure = error
        finally:
            self.close()
            # What reads a process belongs to the thread that opened it: neither this nor a traceback may outlive it.
            self._session, self._recorded = None, iter(())

    def has_ended(self) -> bool:
        """Whether the process has ended; one that only waits for its parent has."""
        if sys.platform == "win32":
            return not self._process.is_running()
        import psutil

        try:
            return not self._process.is_running() or self._process.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            return True


if sys.platform == "win32":

    def _process(pid: int) -> Running:
        return Running(pid)

else:

    def _process(pid: int) -> psutil.Process:
        import psutil

        try:
            return psutil.Process(pid)
        except psutil.Error:
            raise ProcessNotFound(f"no process {pid}", "list processes with ps -e") from None
