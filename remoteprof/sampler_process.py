"""A sampler process as the supervisor holds it, on every system: what it is asked, what it tells, what it costs."""

from __future__ import annotations

import abc
import contextlib
import subprocess
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar

from remoteprof.errors import SamplerDied
from remoteprof.process import cpu_time_ns, peak_memory

if TYPE_CHECKING:
    from remoteprof._native import Event, Link


class SamplerProcess(abc.ABC):
    """A process that was started, and the link to it. Who starts and ends it is the system's Sampler."""

    _BROKEN: ClassVar[tuple[type[Exception], ...]] = (EOFError, ConnectionError)
    """What the link raises when nobody is at its other end."""

    def __init__(self, process: subprocess.Popen[bytes], link: Link) -> None:
        """Takes over both."""
        self._process = process
        self._link: Link | None = link
        self._cpu_ns = 0
        self._peak_memory = 0

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, request: Callable[[Link], None]) -> None:
        """Sends a request, such as `lambda link: link.stop()`. Raises SamplerDied."""
        with self._alive() as link:
            request(link)

    def receive(self, timeout: float) -> Event | None:
        """Its next event; None after `timeout` seconds or when a signal arrived. Raises SamplerDied."""
        with self._alive() as link:
            return link.receive(timeout)

    def cpu_ns(self) -> int:
        """CPU time of the sampler process so far; of one that has ended, all that was seen."""
        if self._process.returncode is None:
            self._cpu_ns = cpu_time_ns(self.pid) or self._cpu_ns
        return self._cpu_ns

    def peak_memory(self) -> int:
        """The largest resident size of the sampler process so far, bytes."""
        if self._process.returncode is None:
            self._peak_memory = max(peak_memory(self.pid), self._peak_memory)
        return self._peak_memory

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the sampler process, by force if it does not end by itself. May be called twice."""

    @contextlib.contextmanager
    def _alive(self) -> Iterator[Link]:
        if self._link is None:
            raise self._death()
        try:
            yield self._link
        except self._BROKEN as error:
            self.close()
            raise self._death() from error

    def _death(self) -> SamplerDied:
        return death(f"ended with status {self._process.returncode or 0}")


def death(how: str) -> SamplerDied:
    """The error for a sampler process that `how`."""
    return SamplerDied(f"the sampler process {how}", "the target is unharmed; try again, and report it if it recurs")
