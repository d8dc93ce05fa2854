"""The story of one recording: open → sample → Batches → Profile. Prints nothing and installs no handlers."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING

from remoteprof.errors import RemoteprofError, UsageError
from remoteprof.process import clock_ns, peak_memory
from remoteprof.processes import Processes, Window
from remoteprof.recording import Recording

if sys.platform == "win32":
    from remoteprof.nt.sampler import Sampler
else:
    from remoteprof.sampler import Sampler

if TYPE_CHECKING:
    from remoteprof._native import Event
    from remoteprof.profile.model import Profile
    from remoteprof.profile.stacks import ThreadStack
    from remoteprof.windows import Ends

MAX_RATE = 1e6
"""Hz; a period of a microsecond is below what a sample costs."""
MIN_STACK, MAX_STACK = 16 << 10, 2 << 20
"""Bounds on the bytes of one native stack that are copied."""
MAX_PAUSE_NS = 1_000_000
"""That a running thread is stopped for at most while its stack is copied, unless something else is said."""
LOCALS_PAUSE = 0.01
"""Seconds that a running thread is stopped for at most while its variables are read, unless something else is said."""
_WAIT = 0.25
"""Seconds that a wait for an event lasts at most: how late a request to stop may be seen."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to record. Durations in nanoseconds, 0 = no end; `rate` in Hz for each thread."""

    rate: float = 100.0
    duration_ns: int = 0
    max_ticks: int = 0
    idle: bool = True
    native: bool = True
    nonblocking: bool = False
    max_pause_ns: int = MAX_PAUSE_NS
    native_all: bool = False
    """Show the frames of the interpreter's own machinery too."""
    max_stack: int = 512 << 10
    """Most bytes of one native stack copied."""
    children: bool = False
    """Record the descendants of the first target too."""
    children_match: str = ""
    """Only those whose name this regular expression is found in; "" = all."""
    times: bool = False
    """Keep each sample with its time, as the label `time`."""
    locals_pause_ns: int = 0
    """Read the variables of Python frames; a running thread is stopped for this long for it, at most. 0 = not."""

    def __post_init__(self) -> None:
        if not 0 < self.rate <= MAX_RATE:
            raise UsageError(
                f"a rate of {self.rate:g} Hz is not possible", f"give one above 0, up to {MAX_RATE:.0f} Hz"
            )
        if self.duration_ns < 0 or self.duration_ns >= 1 << 63:
            raise UsageError("a duration must be positive", "for example 10s")
        if not (0 < self.max_pause_ns < 1 << 63 and 0 <= self.locals_pause_ns < 1 << 63):
            raise UsageError("a longest pause must be positive", "for example 1ms")
        if not MIN_STACK <= self.max_stack <= MAX_STACK:
            raise UsageError(f"{self.max_stack} bytes of stack are not possible", "give 16KiB to 2MiB")
        if self.children_match:
            from remoteprof._native import check_pattern

            try:
                check_pattern(self.children_match)
            except ValueError as error:
                raise UsageError(f"not a regular expression: {self.children_match!r}", str(error)) from None


class Session:
    """A recording in progress: attach() or launch(), start(), run(), close(); a context manager."""

    def __init__(
        self,
        options: Options,
        *,
        since_ns: int | None = None,
        terminal: bool = False,
        after: Session | None = None,
    ) -> None:
        """Starts the sampler process; `after`: a session whose recording has ended, whose sampler process this one goes
        on with, knowing the names that it found. Raises RemoteprofError where it cannot be started."""
        self.options = options
        self.sampler: Sampler = Sampler(terminal=terminal) if after is None else after.sampler
        self.exit_status: int | None = None
        """The wait status of a launched CMD, on Windows its exit code, once it has ended."""
        self.failure: RemoteprofError | None = None
        """Why a launched CMD could not be profiled."""
        self._since_ns = clock_ns() if since_ns is None else since_ns
        self._roots: list[int] = []
        self._launched = 0
        self._processes: Processes = Processes(options.native, None if after is None else after._processes)
        self._finished = False

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def finished(self) -> bool:
        """Whether the recording has ended: no other window follows."""
        return self._finished

    def pids(self) -> list[int]:
        """The processes that are recorded now."""
        return self._processes.pids()

    @property
    def launched(self) -> bool:
        """Whether CMD was started here: its status is awaited from the sampler."""
        return bool(self._launched)

    def close(self) -> None:
        """Ends the sampler process. The target runs on."""
        self.sampler.close()

    def attach(self, pid: int) -> None:
        """Adds process `pid`. Raises ProcessNotFound, PermissionDenied, NothingToProfile, SamplerDied."""
        if pid == os.getpid():
            self.sampler.allow_tracing_us()
        native = self.options.native and not self.options.nonblocking
        self.sampler.ask(lambda link: link.add(pid, native))
        self._expect_added()

    def launch(self, arguments: list[bytes], environment: list[bytes]) -> int:
        """Starts CMD, held before its first instruction until start(); gives its pid. Raises as attach(), and on
        Windows, where `environment` has to be that of this process, OSError."""
        self.sampler.launch(arguments, environment, not self.options.nonblocking)
        self._launched = self._expect_added()
        if sys.platform == "win32":
            self.sampler.launched()
        return self._launched

    def _expect_added(self) -> int:
        while True:
            event = self.sampler.receive(_WAIT)
            if event is None:
                continue
            if event.kind == "added":
                self._processes.add(event.pid)
                self._roots.append(event.pid)
                return event.pid
            self._take(event)

    def start(self) -> None:
        """Begins to sample."""
        options = self.options
        self.sampler.ask(
            lambda link: link.start(
                options.rate,
                options.duration_ns,
                options.max_ticks,
                options.idle,
                options.native,
                options.nonblocking,
                options.max_pause_ns,
                options.max_stack,
                options.children,
                options.children_match,
                options.times,
                options.locals_pause_ns,
            )
        )

    def run(
        self,
        stopping: Callable[[], bool] = lambda: False,
        progress: Callable[[int, float], None] | None = None,
        modules: bool = True,
    ) -> Recording:
        """Takes in what the sampler sends until the recording has ended.

        `stopping` is asked about four times a second, and whenever a signal arrived: True ends the recording.
        `progress` is called as often, with the samples so far and the 99th percentile of pauses in microseconds.
        `modules`: also read what is mapped. Raises SamplerDied, and what the sampler reports.
        """
        [window] = self.windows(stopping, progress, modules)
        return self.settle(window, modules)

    def settle(self, window: Window, modules: bool = True) -> Recording:
        """The recording of one window, with names where `modules`. May be called in another thread."""
        recording = Recording(self.options, self._since_ns, roots=self._roots)
        recording.settle(self._processes, window, modules)
        return recording

    def windows(
        self,
        stopping: Callable[[], bool],
        progress: Callable[[int, float], None] | None = None,
        modules: bool = True,
        ends: Ends | None = None,
    ) -> Iterator[Window]:
        """As run(), but gives a window whenever `ends` says that one ends, and the last one at the end. Between them no
        tick is lost: the sampler goes on, whatever is done with them."""
        stopped = cutting = False
        now = time.monotonic()
        next_progress = now if progress else float("inf")
        while not self._finished:
            if not stopped and stopping():
                stopped = True
                self.sampler.ask(lambda link: link.stop())
            now = time.monotonic()
            if ends is not None and not cutting and not stopped and ends.due(now):
                cutting = True
                self.sampler.ask(lambda link: link.cut())
            next_end = float("inf") if ends is None or cutting else ends.next
            next_look = self._processes.next_look() if modules else float("inf")
            if now >= next_look:
                self._processes.look()
                next_look = self._processes.next_look()
            if now >= next_progress:
                next_progress = now + _WAIT
                self.sampler.ask(lambda link: link.progress())
            event = self.sampler.receive(max(0.0, min(_WAIT, next_look - now, next_progress - now, next_end - now)))
            if event is not None and event.kind == "progress":
                if progress is not None:
                    progress(event.samples, event.pause_p99_us)
            elif event is not None and event.kind == "cut":
                cutting = False
                yield self._processes.take()
            elif event is not None:
                self._take(event)
        yield self._processes.take()

    def wait(self) -> int:
        """Waits until the launched CMD has ended; gives its wait status. Raises SamplerDied."""
        if sys.platform == "win32" and self.exit_status is None:
            self.exit_status = self.sampler.wait_for_command()
        while self.exit_status is None:
            event = self.sampler.receive(_WAIT)
            if event is not None:
                self._take(event)
        return self.exit_status

    def _take(self, event: Event) -> None:
        if event.kind == "batch" and event.batch is not None:
            self._processes.end(event.batch)
            self.sampler.peak_memory()
        elif event.kind == "part" and event.batch is not None:
            self._processes.part(event.batch)
        elif event.kind == "found":
            self._processes.add(event.pid, below=True)
        elif event.kind == "exited" and self._launched and event.pid == self._launched:
            self.exit_status = event.status
        elif event.kind == "exited":
            self._processes.forget(event.pid)
        elif event.kind == "finished":
            self.sampler.peak_memory()
            self._finished = True
        elif event.kind == "failed":
            error = event.error or RemoteprofError("the sampler failed")
            if not self._launched or not isinstance(error, RemoteprofError):
                raise error
            # CMD runs, and its status is awaited; that it cannot be profiled is for the end.
            self.failure = error


def record(
    pid: int,
    duration: float = 10.0,
    rate: float = 100.0,
    *,
    idle: bool = True,
    native: bool = True,
    nonblocking: bool = False,
    max_pause: float = 0.001,
    native_all: bool = False,
    times: bool = False,
) -> Profile:
    """Records process `pid` (this one too) for `duration` seconds, or until it ends, and gives the profile.

    rate: samples a second of each thread. idle: sample sleeping threads as well. nonblocking: never stop a thread (the
    result is biased, and without native frames). max_pause: seconds that a thread is stopped for at most. native:
    frames of C, C++ and Rust too; native_all: also the interpreter's own machinery between Python frames. times: keep
    samples apart, each with the label `time` (Unix nanoseconds), instead of adding up those of equal stacks.

    The profile has the columns samples, cpu, wall and (for a Python) gil; `.stats` tells how the recording went.

    >>> profile = record(os.getpid(), duration=0.2, rate=500)
    >>> [kind.type for kind in profile.sample_types]
    ['samples', 'cpu', 'wall', 'gil']
    >>> profile.total("samples") == profile.stats["samples"] + profile.stats["pending_ticks"] > 0
    True

    Raises UsageError, ProcessNotFound, PermissionDenied, AlreadyTraced, NothingToProfile or SamplerDied.
    """
    began = clock_ns()
    cpu = time.thread_time_ns()
    if not duration > 0:
        raise UsageError("a duration must be positive", "give seconds")
    options = Options(
        rate,
        round(duration * 1e9),
        idle=idle,
        native=native,
        nonblocking=nonblocking,
        max_pause_ns=round(max_pause * 1e9),
        native_all=native_all,
        times=times,
    )
    with Session(options, since_ns=began) as session:
        session.attach(pid)
        session.start()
        recording = session.run()
    profile = recording.profile(f"remoteprof.record(pid={pid}, duration={duration:g}, rate={rate:g})")
    # Of the host program only this call's own time; its memory is not ours.
    profile.stats["profiler_cpu_ns"] = time.thread_time_ns() - cpu + session.sampler.cpu_ns()
    profile.stats["profiler_peak_rss_bytes"] = session.sampler.peak_memory()
    return profile


def dump(
    pid: int,
    *,
    native: bool = True,
    native_all: bool = False,
    locals: bool = False,
    max_pause: float = LOCALS_PAUSE,
) -> list[ThreadStack]:
    """The stack of every thread of process `pid`, once.

    locals: also the variables of each Python frame (`Frame.locals`), with their values as text, as repr() has it within
    bounds; nothing of the process runs for it. max_pause: seconds that a running thread is stopped for at most to read
    them. Raises as record().
    """
    with Session(look_once(native, locals, max_pause)) as session:
        session.attach(pid)
        session.start()
        recording = session.run(modules=native)
    return thread_stacks_of(recording, native_all)


def look_once(native: bool, locals: bool, max_pause: float) -> Options:
    """The options of a dump, whose arguments these are."""
    if locals and not max_pause > 0:
        raise UsageError("a longest pause must be positive", "give seconds")
    if not locals:
        options = Options(max_ticks=1, native=native)
        # A first look has nothing to go by, and on Windows each piece of memory is a call of its own.
        return replace(options, max_pause_ns=100_000_000) if sys.platform == "win32" else options
    pause = round(max_pause * 1e9)
    # Whoever allows longer stops wants no stack that was cut for its time.
    return Options(max_ticks=1, native=native, max_pause_ns=max(MAX_PAUSE_NS, pause), locals_pause_ns=max(pause, 1))


def thread_stacks_of(recording: Recording, native_all: bool) -> list[ThreadStack]:
    """The last stack of each thread of a recording, process by process."""
    from remoteprof.profile.stacks import thread_stacks

    names = recording.names or [{}] * len(recording.batches)
    return [
        stack
        for batch, of in zip(recording.batches, names, strict=True)
        for stack in thread_stacks(batch, of, native_all)
    ]


def own_cost(session: Session) -> dict[str, int]:
    """What remoteprof itself took so far, where this whole process is remoteprof: the fields for its stats."""
    return {
        "profiler_cpu_ns": time.process_time_ns() + session.sampler.cpu_ns(),
        "profiler_peak_rss_bytes": peak_memory() + session.sampler.peak_memory(),
    }
