"""`goroutines`: Go programs from outside."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import click

from remoteprof.cli.selecting import takes_process
from remoteprof.cli.text import say
from remoteprof.errors import UsageError

if TYPE_CHECKING:
    from remoteprof.golang.goroutines import Goroutines


@click.command()
@takes_process()
@click.option("-o", "--output", metavar="PATH", help="Write a profile; - = stdout.  [default: text on stdout]")
@click.option("-f", "--format", "form", metavar="FORMAT", help="Of the profile.  [default: by suffix, else pprof]")
@click.option(
    "--debug",
    type=click.IntRange(1, 2),
    help="Text: 1 = equal stacks together, 2 = one by one as after a panic.  [default: 1]",
)
@click.option("--system", is_flag=True, help="Those of the Go runtime itself too.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the text, and errors.")
def goroutines(pid: int, output: str | None, form: str | None, debug: int | None, system: bool, quiet: bool) -> None:
    """Show every goroutine of the Go program PID, or write their profile with -o.

    The program needs no preparation and may be stripped; Go 1.18 and later. Without -o and -f the stacks are printed as
    text, as net/http/pprof does for debug=1 and debug=2.
    """
    from remoteprof.golang.goroutines import read

    if output is None and form is not None:
        raise UsageError("a format is that of a file", "name one with -o PATH, or - for stdout")
    if output is not None:
        if debug is not None:
            raise UsageError("--debug is for text on stdout", "leave out -o, or --debug")
        from remoteprof.formats import choose
        from remoteprof.sinks import open_sink

        choose(output, form)
        open_sink(output).check()
    found = read(pid, system=system)
    if not quiet:
        say(*(f"note: {note}" for note in found.notes))
    if output is None:
        _print(found, debug or 1)
        return
    from remoteprof.formats import choose, save

    profile = found.profile(shlex.join(["remoteprof", *sys.argv[1:]]))
    save(profile, output, form)
    if not quiet:
        opener = choose(output, form)[0].opener
        say(
            f"{len(found.all)} goroutines, {len(profile.samples)} distinct stacks, {found.version or 'Go'}",
            f"open it: {opener.format('FILE' if output == '-' else shlex.quote(output))}",
        )


def _print(found: Goroutines, debug: int) -> None:
    from remoteprof.golang.text import grouped, one_by_one
    from remoteprof.sinks.file import writing_stdout

    lines = grouped(found) if debug == 1 else one_by_one(found)
    with writing_stdout():
        sys.stdout.writelines(f"{line}\n" for line in lines)
