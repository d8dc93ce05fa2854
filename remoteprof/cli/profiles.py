"""`convert`: profiles that were recorded before, by remoteprof or others."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from remoteprof.cli.text import say

if TYPE_CHECKING:
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


def opened(path: str, time_ns: int | None = None) -> Profile:
    """The profile at `path`, of any format that is read. What is to be told of it goes to stderr, and into its
    comments."""
    from remoteprof.profile.model import Profile

    profile = Profile.load(path)
    if time_ns is not None:
        profile.time_ns = time_ns
    say(*(f"warning: {path}: {note}" for note in profile.notes))
    profile.comments += profile.notes
    profile.notes = []
    return profile


@click.command()
@click.argument("profile", metavar="IN")
@click.option("-o", "--output", metavar="OUT", required=True, help="Where to; - = stdout.")
@click.option("-f", "--format", "form", metavar="FORMAT", help="Output format.  [default: by suffix, else pprof]")
@click.option("--time", "time_ns", type=moment, help="When the recording began: ISO 8601 or Unix seconds.")
def convert(profile: str, output: str, form: str | None, time_ns: int | None) -> None:
    """Write profile IN in another format.

    IN is pprof, compressed or not, or a CPU profile of gperftools; which one is seen from its content.
    """
    from remoteprof.formats import choose, save
    from remoteprof.sinks import open_sink

    choose(output, form)
    open_sink(output).check()
    save(opened(profile, time_ns), output, form)
