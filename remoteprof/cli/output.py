"""Where a recording goes, and what is said about it."""

from __future__ import annotations

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
    from collections.abc import Callable

    from remoteprof.profile.model import Profile
    from remoteprof.session import Recording, Session

NEARLY_NO_CPU = 0.001
"""Share of wall time below which CPU time says nothing about a program."""


class Outputs:
    """The outputs of one recording: the profile, and its stats where asked for."""

    def __init__(self, choices: Choices) -> None:
        """Raises UsageError for an unknown format, and what a write would raise where it is known to fail."""
        self.choices = choices
        if choices.format is not None:
            from remoteprof.formats import choose

            choose("", choices.format)
        if choices.all_output is not None:
            _make_folder(Path(choices.all_output))
        # The default name is not complete yet, but its directory is known.
        for path in (choices.output or ".remoteprof", choices.stats):
            if path is not None:
                open_sink(path).check()

    def write(self, recording: Recording, session: Session, name: str) -> None:
        """Writes everything, and tells of it on stderr. `name` is the target's. Raises OutputError."""
        from remoteprof.formats import FORMATS, save

        choices = self.choices
        pid = recording.batches[0].pid if recording.batches else 0
        suffix = FORMATS[choices.format or "pprof"].suffixes[0]
        path = choices.output or f"{safe_file_name(name)}-{pid}{suffix}"
        command = shlex.join(["remoteprof", *sys.argv[1:]])
        profile = recording.profile(command)
        size = save(profile, path, choices.format)
        if choices.all_output is not None:
            self._write_each(recording, command, Path(choices.all_output), suffix)
        if session.exit_status is not None or not session.launched:
            session.close()  # its whole CPU time is known only when it has ended
        from remoteprof.session import own_cost

        stats = {**profile.stats, **own_cost(session), "output_bytes": size}
        if choices.stats is not None:
            content = json.dumps(stats, indent=1).encode() + b"\n"
            open_sink(choices.stats).write(_writer(content))
        if not choices.quiet:
            say(*report(profile, stats, path, choices.format))

    def _write_each(self, recording: Recording, command: str, folder: Path, suffix: str) -> None:
        from remoteprof.formats import save

        taken: set[str] = set()
        for one in recording.by_process():
            batch = one.batches[0]
            name = start = f"{safe_file_name(batch.process)}-{batch.pid}"
            # A pid may have been given twice.
            while name in taken:
                name = f"{start}-{len(taken)}"
            taken.add(name)
            save(one.profile(command), str(folder / f"{name}{suffix}"), self.choices.format)


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


def report(profile: Profile, stats: dict[str, Any], path: str, form: str | None = None) -> list[str]:
    """What stderr ends with: how it went, the five heaviest functions, the command that opens the profile."""
    from remoteprof.formats import choose
    from remoteprof.stats import duration_text, summary

    lines = [*(f"note: {note}" for note in profile.notes), *summary(stats)]
    lines.append(
        f"remoteprof itself: cpu {duration_text(stats['profiler_cpu_ns'])}, "
        f"memory {stats['profiler_peak_rss_bytes'] / (1 << 20):.0f} MiB, output {stats['output_bytes']} bytes"
    )
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
