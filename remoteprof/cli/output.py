"""Where a recording goes, and what is said about it."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remoteprof.cli.options import Choices
from remoteprof.cli.text import safe_file_name, say
from remoteprof.errors import OutputError
from remoteprof.sinks import Stream, open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remoteprof.profile.model import Profile
    from remoteprof.recording import Recording
    from remoteprof.session import Session

NEARLY_NO_CPU = 0.001
"""Share of wall time below which CPU time says nothing about a program."""


class Outputs:
    """The outputs of one recording: the profile, and its stats where asked for."""

    def __init__(self, choices: Choices) -> None:
        """Raises UsageError for an unknown format, and what a write would raise where it is known to fail."""
        self.choices = choices
        self.name = ""
        self._recording: Recording | None = None
        if choices.format is not None:
            from remoteprof.formats import choose

            choose("", choices.format)
        if choices.all_output is not None:
            _make_folder(Path(choices.all_output))
        # The default name is not complete yet, but its directory is known.
        for path in (choices.output or ".remoteprof", choices.stats):
            if path is not None:
                open_sink(path).check()

    def signals(self) -> contextlib.AbstractContextManager[None]:
        """Handles the signals that concern outputs."""
        return contextlib.nullcontext()

    def record(
        self,
        session: Session,
        name: str,
        stopping: Callable[[], bool] = lambda: False,
        progress: Callable[[int, float], None] | None = None,
    ) -> None:
        """Runs a session that has been started to its end. `name` is the target's. Raises as Session.run."""
        self.name = name
        self._recording = session.run(stopping, progress)

    def write(self, session: Session) -> None:
        """Writes everything, and tells of it on stderr. Raises OutputError."""
        recording = self._recording
        if recording is None or (session.launched and not recording.batches):
            return
        path = self.path(recording)
        profile, size = self.save(recording, path)
        if self.choices.all_output is not None:
            self.save_each(recording, Path(self.choices.all_output))
        stats = self.finish(session, {**profile.stats, "output_bytes": size})
        if not self.choices.quiet:
            say(*report(profile, stats, path, self.choices.format))

    @property
    def suffix(self) -> str:
        """The suffix of the format, where the output has none of its own."""
        from remoteprof.formats import FORMATS

        return FORMATS[self.choices.format or "pprof"].suffixes[0]

    def path(self, recording: Recording) -> str:
        """The output's path: the one given, or the default."""
        pid = recording.batches[0].pid if recording.batches else 0
        return self.choices.output or f"{safe_file_name(self.name)}-{pid}{self.suffix}"

    def save(self, recording: Recording, path: str) -> tuple[Profile, int]:
        """Writes one profile; gives it, and the number of bytes. Raises OutputError."""
        from remoteprof.formats import save

        profile = recording.profile(_command_line())
        return profile, save(profile, path, self.choices.format)

    def finish(self, session: Session, stats: dict[str, Any]) -> dict[str, Any]:
        """Adds to the stats what remoteprof itself took, and writes them where asked for."""
        if session.exit_status is not None or not session.launched:
            session.close()  # its whole CPU time is known only when it has ended
        from remoteprof.session import own_cost

        stats = {**stats, **own_cost(session)}
        if self.choices.stats is not None:
            content = json.dumps(stats, indent=1).encode() + b"\n"
            open_sink(self.choices.stats).write(_writer(content))
        return stats

    def save_each(self, recording: Recording, folder: Path, ending: str = "") -> list[str]:
        """Writes a profile of each process, its name ending in `ending`; gives their paths. Raises OutputError."""
        from remoteprof.formats import save

        taken: set[str] = set()
        paths = []
        for one in recording.by_process():
            batch = one.batches[0]
            name = start = f"{safe_file_name(batch.process)}-{batch.pid}"
            # A pid may have been given twice.
            while name in taken:
                name = f"{start}-{len(taken)}"
            taken.add(name)
            paths.append(str(folder / f"{name}{ending}{self.suffix}"))
            save(one.profile(_command_line()), paths[-1], self.choices.format)
        return paths


def _command_line() -> str:
    return shlex.join(["remoteprof", *sys.argv[1:]])


def _writer(content: bytes) -> Callable[[Stream], None]:
    def fill(stream: Stream) -> None:
        stream.write(content)

    return fill


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"cannot make the folder {path}: {error.strerror}", "give another with --all-output"
        ) from None
    open_sink(str(path / ".remoteprof")).check()


def report(
    profile: Profile, stats: dict[str, Any], path: str, form: str | None = None, more: Sequence[str] = ()
) -> list[str]:
    """What stderr ends with: how it went, `more`, the five heaviest functions, the command that opens the profile."""
    from remoteprof.formats import choose
    from remoteprof.stats import duration_text, summary

    lines = [*(f"note: {note}" for note in profile.notes), *summary(stats)]
    lines.append(
        f"remoteprof itself: cpu {duration_text(stats['profiler_cpu_ns'])}, "
        f"memory {stats['profiler_peak_rss_bytes'] / (1 << 20):.0f} MiB, output {stats['output_bytes']} bytes"
    )
    lines.extend(more)
    column = "cpu"
    if profile.total("cpu") <= NEARLY_NO_CPU * profile.total("wall"):
        column = "wall"
    total = profile.total(column)
    lines.append(f"heaviest by {column} time:" if total else "no time was sampled")
    for function, value in profile.heaviest(5, column):
        place = f" ({function.file}{f':{function.start_line}' if function.start_line else ''})" if function.file else ""
        lines.append(f"{100 * value / total:6.1f} % {duration_text(value):>8}  {function.name}{place}")
    opener = choose(path, form)[0].opener
    if path == "-":
        lines.append(f"open it: {opener.format('FILE')}, where FILE is what stdout was written to")
    else:
        lines.append(f"open it: {opener.format(shlex.quote(path))}")
    return lines


class Progress:
    """The progress line, on a terminal only: time left, samples a second, p99 of the pauses. A context manager."""

    def __init__(self, duration_ns: int) -> None:
        self._duration = duration_ns / 1e9
        self._began = time.monotonic()
        self._live: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, samples: int, pause_p99_us: float) -> None:
        """Shows the state."""
        passed = max(time.monotonic() - self._began, 1e-3)
        parts = [f"{max(self._duration - passed, 0):.0f} s left" if self._duration else f"{passed:.0f} s"]
        parts += [f"{samples / passed:.0f} samples/s", f"pause p99 {pause_p99_us:.0f} µs", "Ctrl-C ends it"]
        self._update("recording: " + " · ".join(parts))

    def _update(self, text: str) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            # No auto_refresh: that would be a thread.
            self._live = Live(
                console=Console(stderr=True),
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)


def on_terminal() -> bool:
    """Whether stderr is a terminal."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except (io.UnsupportedOperation, ValueError):
        return False
