"""The options that recording commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from remoteprof.cli.text import parse_duration, parse_size
from remoteprof.conditions import Condition
from remoteprof.errors import ProcessNotFound
from remoteprof.session import MAX_RATE

_Command = TypeVar("_Command", bound=Callable[..., Any])


def duration(value: str | int) -> int:
    """A duration, as nanoseconds; a default is nanoseconds already."""
    if isinstance(value, int):
        return value
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def size(value: str | int) -> int:
    """A size, as bytes; a default is bytes already."""
    if isinstance(value, int):
        return value
    try:
        return parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def condition(value: str | Condition) -> Condition:
    """A condition such as cpu>80% or rss>2GiB."""
    if isinstance(value, Condition):
        return value
    what, over, limit = value.replace(" ", "").partition(">")
    try:
        if over and what == "cpu" and limit.endswith("%"):
            share = float(limit[:-1])
            if not 0 <= share < float("inf"):
                raise ValueError
            return Condition(value, what, share)
        if over and what == "rss":
            return Condition(value, what, parse_size(limit))
    except ValueError:
        pass
    raise click.BadParameter(f"{value!r} is not a condition such as cpu>80% or rss>2GiB")


def rate(value: str | float) -> float:
    """A rate in Hz."""
    try:
        number = float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a number") from None
    if not 0 < number <= MAX_RATE:
        raise click.BadParameter(f"{value!r} is not a rate above 0, up to {MAX_RATE:.0f} Hz")
    return number


def pid(value: str) -> int:
    """A process id: a positive whole number; one that no process can have is one that none has."""
    if not (value.isascii() and value.isdigit() and value.strip("0")):
        raise click.BadParameter(f"{value!r} is not a process id")
    digits = value.lstrip("0")
    if len(digits) > 10 or int(digits) > 0x7FFFFFFF:
        raise ProcessNotFound(f"no process {digits}", "list processes with ps -e")
    return int(digits)


@dataclass(frozen=True, slots=True)
class Choices:
    """The shared options as they were given. Durations in nanoseconds; None = not given."""

    duration: int | None
    rate: float
    output: str | None
    format: str | None
    native: bool
    native_all: bool
    max_stack: int
    idle: bool
    max_pause: int
    nonblocking: bool
    children: bool | None
    children_match: str | None
    times: bool
    stats: str | None
    all_output: str | None
    window: int | None
    keep: int | None
    last: int | None
    when: tuple[Condition, ...]
    quiet: bool


def recording_options(command: _Command) -> _Command:
    """Adds the shared options; they arrive as the keyword arguments that Choices takes."""
    for option in reversed(
        [
            click.option("-d", "--duration", type=duration, help="How long: 500ms, 10s, 2m, 1h, or bare seconds."),
            click.option("-r", "--rate", type=rate, default=100.0, help="Samples a second and thread.  [default: 100]"),
            click.option("-o", "--output", metavar="PATH", help="Where to; - = stdout.  [default: NAME-PID.pb.gz]"),
            click.option("-f", "--format", metavar="FORMAT", help="Output format.  [default: by suffix, else pprof]"),
            click.option("--native/--no-native", default=True, help="Native frames too.  [default: on]"),
            click.option("--native-all", is_flag=True, help="The interpreter's own machinery too."),
            click.option("--max-stack", type=size, default=512 << 10, help="Of a native stack.  [default: 512KiB]"),
            click.option("--idle/--no-idle", default=True, help="Sleeping threads too.  [default: on]"),
            click.option("--max-pause", type=duration, default=1_000_000, help="Longest stop.  [default: 1ms]"),
            click.option("--nonblocking", is_flag=True, help="Never stop a thread; the result is biased."),
            click.option("--children/--no-children", default=None, help="Descendants too.  [run: on, attach: off]"),
            click.option("--children-match", metavar="REGEX", help="Only descendants whose name this is found in."),
            click.option("--times", is_flag=True, help="Keep the time of each sample (label time)."),
            click.option("--stats", metavar="FILE", help="Write how the recording went, as JSON."),
            click.option("--all-output", metavar="DIR", help="A profile of each process too, in this folder."),
            click.option(
                "--window",
                type=duration,
                metavar="DURATION",
                help="A file for each such window, without a gap between them, named NAME-TIME.pb.gz after -o and its "
                "start in UTC; SIGUSR1 ends one at once. Then nothing but -d ends an attach by itself.",
            ),
            click.option(
                "--keep",
                type=click.IntRange(1),
                metavar="N",
                help="Only the N newest files.  [default: all]",
            ),
            click.option(
                "--last",
                type=duration,
                metavar="DURATION",
                help="Keep only the newest such time, in memory; write it, to a file named like a window, at SIGUSR1, "
                "--when a condition begins to hold, and at the end.",
            ),
            click.option(
                "--when",
                type=condition,
                multiple=True,
                metavar="CONDITION",
                help="cpu>80% (of one core) or rss>2GiB, of the process, or of all with --children; repeatable.",
            ),
            click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
        ]
    ):
        command = option(command)
    return command
