"""A process watched as it runs: one short recording after another, by one sampler process."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from remoteprof.errors import ProcessNotFound, RemoteprofError, SamplerDied
from remoteprof.session import Options, Session

if TYPE_CHECKING:
    import psutil

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
    """The windows of process `pid`, recorded one after another by a thread of its own; a context manager.

    Sampling, finding names and adding up are all done in that thread, and by the sampler process.
    """

    def __init__(self, pid: int, options: Options, command: str) -> None:
        """`options.duration_ns` is the length of a window. Raises ProcessNotFound."""
        import psutil

        self.pid = pid
        self.options = options
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
        try:
            self._process: psutil.Process = psutil.Process(pid)
        except psutil.Error:
            raise ProcessNotFound(f"no process {pid}", "list processes with ps -e") from None

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
        """No window is begun while it is paused: the process is left alone."""
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
        """Records one window, here and now. Raises as record(), and ProcessNotFound where the process has ended."""
        if not self._process.is_running():
            raise ProcessNotFound(f"process {self.pid} has ended")
        session = self._session = Session(self.options, after=self._session)
        session.attach(self.pid)
        session.start()
        recording = session.run(self._closing.is_set)
        batch = recording.batches[0]
        self._count += 1
        window = Window(self._count, recording.profile(self._command), batch.process, batch.runtime)
        self._windows.append(window)
        return window

    def close(self) -> None:
        """Ends the sampler process of take()."""
        if self._session is not None:
            self._session.close()

    def stop(self) -> None:
        """Ends the window that is being recorded."""
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
            self._session = None

    def has_ended(self) -> bool:
        """Whether the process has ended; one that only waits for its parent has."""
        import psutil

        try:
            return not self._process.is_running() or self._process.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            return True
