"""`heap`, `allocs`, `block` and `mutex`: the profiles that Go's runtime keeps, from outside."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from remoteprof.cli.options import duration
from remoteprof.cli.selecting import takes_process
from remoteprof.cli.signals import stop_requests
from remoteprof.cli.text import safe_file_name, say

if TYPE_CHECKING:
    from remoteprof.golang.buckets import Reader
    from remoteprof.profile.model import Profile

_LOOK = 0.1
"""Seconds after which Ctrl-C is seen, at most."""


def _options(command: Callable[..., Any]) -> click.Command:
    for option in reversed(
        [
            takes_process(),
            click.option(
                "-o", "--output", metavar="PATH", help="Where to; - = stdout.  [default: NAME-PID-KIND.pb.gz]"
            ),
            click.option(
                "-f", "--format", "form", metavar="FORMAT", help="Output format.  [default: by suffix, else pprof]"
            ),
            click.option(
                "--delta",
                type=duration,
                metavar="DURATION",
                help="Only what is added in this time, from now on: 30s, 2m, or bare seconds; Ctrl-C ends it.",
            ),
            click.option(
                "--generics",
                type=click.Choice(["full", "short"]),
                default="full",
                help="Type arguments: as the linker has them, or as [...].  [default: full]",
            ),
            click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
        ]
    ):
        command = option(command)
    return click.command()(command)


@_options
def heap(**given: Any) -> None:
    """Write what the Go program PID has on its heap, and what it has allocated.

    The same as its own /debug/pprof/heap, of a program that may be stripped; Go 1.18 and later. As there, it is the
    state of the last finished garbage collection, estimated from one allocation in runtime.MemProfileRate bytes. The
    linker leaves heap profiling out of programs that import neither net/http/pprof nor runtime/pprof: then there is
    none, and the exit code is 5. With --delta allocations are those of that time, and what is in use is what is in use
    at its end.
    """
    _run("heap", **given)


@_options
def allocs(**given: Any) -> None:
    """Write what the Go program PID has allocated since its start, or with --delta in that time.

    As `heap`, with alloc_space as the value that is shown first.
    """
    _run("allocs", **given)


@_options
def block(**given: Any) -> None:
    """Write what goroutines of the Go program PID have waited for, how often and how long.

    The same as its own /debug/pprof/block. The program has to have called runtime.SetBlockProfileRate; otherwise there
    is no such profile, and the exit code is 5.
    """
    _run("block", **given)


@_options
def mutex(**given: Any) -> None:
    """Write who held the mutexes that goroutines of the Go program PID have waited for, how often and how long.

    The same as its own /debug/pprof/mutex. The program has to have called runtime.SetMutexProfileFraction; otherwise
    there is no such profile, and the exit code is 5.
    """
    _run("mutex", **given)


def _run(
    kind: str, pid: int, output: str | None, form: str | None, delta: int | None, generics: str, quiet: bool
) -> None:
    from remoteprof.formats import FORMATS, choose, save
    from remoteprof.golang.buckets import Reader
    from remoteprof.sinks import open_sink

    choose(output or "", form)
    open_sink(output or ".remoteprof").check()
    with Reader(pid, kind) as reader:
        profile = _take(reader, delta, short=generics == "short", quiet=quiet)
    path = output or f"{safe_file_name(reader.process)}-{pid}-{kind}{FORMATS[form or 'pprof'].suffixes[0]}"
    save(profile, path, form)
    if not quiet:
        say(*_report(profile, path, form))


def _take(reader: Reader, delta: int | None, *, short: bool, quiet: bool) -> Profile:
    command = shlex.join(["remoteprof", *sys.argv[1:]])
    before = reader.read(delta=delta is not None)
    if delta is None:
        return reader.profile(before, command=command, short=short)
    reader.check(before)
    if not quiet:
        say(f"waiting for {delta / 1e9:g} s; Ctrl-C ends it")
    with stop_requests() as stopping:
        end = time.monotonic() + delta / 1e9
        while not stopping() and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))
        return reader.profile(reader.read(delta=True), before, command=command, short=short)


def _report(profile: Profile, path: str, form: str | None) -> list[str]:
    from remoteprof.cli.changes import value_text
    from remoteprof.formats import choose
    from remoteprof.profile.table import column_of

    column = profile.sample_types[column_of(profile)]
    totals = [f"{kind.type} {value_text(profile.total(kind.type), kind)}" for kind in profile.sample_types]
    lines = [*(f"note: {note}" for note in profile.notes)]
    lines.append(f"{len(profile.samples)} stacks: {', '.join(totals)}")
    lines.append(f"heaviest by {column.type}:")
    total = profile.total(column.type)
    for function, value in profile.heaviest(5, column.type):
        share = f"{100 * value / total:6.1f} % " if total > 0 else ""
        lines.append(f"{share}{value_text(value, column):>10}  {function.name} ({function.file})")
    opener = choose(path, form)[0].opener
    lines.append(f"open it: {opener.format('FILE' if path == '-' else shlex.quote(path))}")
    return lines
