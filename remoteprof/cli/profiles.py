"""`convert`, `merge` and `diff`: profiles that were recorded before, by remoteprof or others."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING

import click

from remoteprof.cli.text import say
from remoteprof.errors import RemoteprofError

if TYPE_CHECKING:
    from remoteprof.profile.legacy import Names
    from remoteprof.profile.model import Profile

MAX_INT64 = (1 << 63) - 1


def moment(value: str | int) -> int:
    """A time, as Unix nanoseconds: Unix seconds, or ISO 8601 (local where it has no zone)."""
    if isinstance(value, int):
        return value
    try:
        try:
            seconds = float(value)
        except ValueError:
            # Python 3.10 does not know Z.
            seconds = datetime.fromisoformat(f"{value[:-1]}+00:00" if value.endswith("Z") else value).timestamp()
        nanoseconds = round(seconds * 1e9)
    except (ValueError, OverflowError):
        nanoseconds = -1
    if not 0 <= nanoseconds <= MAX_INT64:
        raise click.BadParameter(f"{value!r} is not a time such as 2024-05-31T12:00:00Z or 1717156800")
    return nanoseconds


def opened(path: str, signed: bool = False, time_ns: int | None = None, symbols: bool = False) -> Profile:
    """The profile at `path` ("-" = stdin), of any format that is read; `symbols`: with names from files at hand, where
    it has none. What is to be told of it goes to stderr, and into its comments."""
    from remoteprof.profile.loading import load, parse, read

    names: Names | None = None
    if symbols:
        from remoteprof.profile import at_hand

        names = at_hand.names

    if path == "-":
        content = read(sys.stdin.buffer) if sys.stdin is not None else b""
        profile = parse(content, "stdin", signed=signed, names=names)
    else:
        profile = load(path, signed=signed, names=names)
    if time_ns is not None:
        profile.time_ns = time_ns
    say(*(f"warning: {path}: {note}" for note in profile.notes))
    profile.comments += profile.notes
    profile.notes = []
    return profile


_signed = click.option("--signed", is_flag=True, help="Accept values below zero, as a difference has them.")
_format = click.option(
    "-f", "--format", "form", metavar="FORMAT", help="Output format.  [default: by suffix, else pprof]"
)


@click.command()
@click.argument("profile", metavar="IN")
@click.option("-o", "--output", metavar="OUT", required=True, help="Where to; - = stdout.")
@_format
@click.option("--time", "time_ns", type=moment, help="When the recording began: ISO 8601 or Unix seconds.")
@click.option("--symbols/--no-symbols", default=True, help="Find names in the mapped files.  [default: on]")
@_signed
def convert(profile: str, output: str, form: str | None, time_ns: int | None, symbols: bool, signed: bool) -> None:
    """Write profile IN (- = stdin) in another format.

    IN is pprof, compressed or not, or a CPU profile of gperftools; which one is seen from its content.
    Addresses without a name get theirs from the mapped files, where these are here and have the same build id.
    """
    from remoteprof.formats import choose, save
    from remoteprof.sinks import open_sink

    choose(output, form)
    open_sink(output).check()
    save(opened(profile, signed, time_ns, symbols), output, form)


@click.command()
@click.argument("profiles", metavar="IN...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="OUT", required=True, help="Where to; - = stdout.")
@_format
@_signed
def merge(profiles: tuple[str, ...], output: str, form: str | None, signed: bool) -> None:
    """Write the sum of profiles.

    They must have the same sample types and period. Code is the same where its module has the same build id.
    """
    from remoteprof.formats import choose, save
    from remoteprof.profile.merge import merge as add
    from remoteprof.sinks import open_sink

    choose(output, form)
    open_sink(output).check()
    # One after the other: memory follows the sum, not the number of files.
    total = add([opened(profiles[0], signed)])
    for path in profiles[1:]:
        other = opened(path, signed)
        try:
            total = add([total, other])
        except RemoteprofError as error:
            raise type(error)(f"{path}: {error.message}", error.hint) from None
    save(total, output, form)


@click.command()
@click.argument("base", metavar="BASE")
@click.argument("new", metavar="NEW")
@click.option("-t", "--type", "sample_type", metavar="TYPE", help="What to compare, such as cpu.  [default: NEW's own]")
@click.option("-n", "--count", type=click.IntRange(1), default=30, help="Functions to show.  [default: 30]")
@click.option("--cum", is_flag=True, help="Sort by the cumulative change.")
@click.option("--normalize", is_flag=True, help="Scale BASE to the total of NEW, if they ran for different times.")
@click.option("-o", "--output", metavar="OUT", help="Write the difference there instead; - = stdout.")
@_format
@_signed
def diff(
    base: str,
    new: str,
    sample_type: str | None,
    count: int,
    cum: bool,
    normalize: bool,
    output: str | None,
    form: str | None,
    signed: bool,
) -> None:
    """Show what changed from profile BASE to NEW, the largest change first.

    With -o the difference is written as a profile: as pprof, which `go tool pprof -top` shows as one, or as a flame
    graph (.html, .svg), red where NEW has more and blue where it has less; a box is as wide as both profiles together.
    """
    from remoteprof.formats import choose, save
    from remoteprof.profile.diff import diff as compare
    from remoteprof.sinks import open_sink
    from remoteprof.sinks.file import writing_stdout
    from remoteprof.text import printable

    if output is not None:
        choose(output, form)
        open_sink(output).check()
    found = compare(opened(base, signed), opened(new, signed), sample_type, normalize=normalize)
    say(*(f"note: {note}" for note in found.notes))
    if output is not None:
        save(found.profile(), output, form)
        return
    from remoteprof.cli.changes import table

    with writing_stdout():
        for line in table(found, count, cum):
            click.echo(printable(line))
