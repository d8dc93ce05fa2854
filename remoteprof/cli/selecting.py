"""The process that a command is about: by its pid, or by what is known of it."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from remoteprof.cli.options import pid as process_id
from remoteprof.cli.text import say
from remoteprof.errors import ProcessNotFound, UsageError
from remoteprof.selecting import Selector
from remoteprof.text import printable

if TYPE_CHECKING:
    import psutil

_Command = Callable[..., Any]
LISTED = 50
"""Most processes that are listed."""
COMMAND_SHOWN = 120
"""Most characters of a command line that are shown."""


def takes_process(*, required: bool = True) -> Callable[[_Command], _Command]:
    """Gives a command the argument PID and the options that choose a process instead; it gets the one as `pid`: None
    where nothing was given and it is not `required`.

    The command ends with ProcessNotFound where none is chosen. Where several are, they are listed and, on a terminal,
    asked about; without one the command ends with UsageError. None is ever guessed.
    """

    def decorate(command: _Command) -> _Command:
        @functools.wraps(command)
        def chosen(
            pid: int | None,
            select_name: str | None,
            select_cmdline: str | None,
            select_cgroup: str | None,
            select_user: str | None,
            **given: Any,
        ) -> Any:
            wanted = [select_name, select_cmdline, select_cgroup, select_user]
            if "" in wanted:
                # As from a shell variable that is not set: to leave it out would choose what was not meant.
                raise UsageError("an empty text chooses no process", "leave the option out, or give it a text")
            selector = Selector(*(text or "" for text in wanted))
            if pid is not None and selector:
                raise UsageError("both a PID and options that choose a process", "give one or the other")
            if selector:
                pid = _choose(selector)
            elif pid is None and required:
                raise click.UsageError("Missing argument 'PID', or one of --name, --cmdline, --cgroup and --user")
            return command(pid=pid, **given)

        result: _Command = chosen
        for option in (
            click.option("--user", "select_user", metavar="NAME", help="By its user."),
            click.option("--cgroup", "select_cgroup", metavar="TEXT", help="By its control group's path."),
            click.option("--cmdline", "select_cmdline", metavar="REGEX", help="By its arguments."),
            click.option("--name", "select_name", metavar="REGEX", help="Choose the process by its name."),
            click.argument("pid", type=process_id, required=False),
        ):
            result = option(result)
        return result

    return decorate


def _choose(selector: Selector) -> int:
    import psutil

    found = selector.find()
    if not found:
        raise ProcessNotFound(
            "no process matches",
            "all options must hold for one process; list processes with ps -eo pid,user,cgroup,args",
        )
    process = found[0] if len(found) == 1 else _ask(found)
    if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
        raise ProcessNotFound(f"process {process.pid} has ended", "choose another")
    return process.pid


def _ask(found: list[psutil.Process]) -> psutil.Process:
    lines = [f"{len(found)} processes match:", *_listing(found[:LISTED])]
    if len(found) > LISTED:
        lines.append(f"and {len(found) - LISTED} more")
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()):
        raise UsageError("\n".join(lines), "give one PID, or options that only one process matches")
    say(*lines)
    shown = min(len(found), LISTED)
    number = click.prompt(f"which one (1 to {shown})", type=click.IntRange(1, shown), err=True)
    assert isinstance(number, int)
    return found[number - 1]


def _listing(found: list[psutil.Process]) -> list[str]:
    """A line for each: its number, pid, user, CPU time, start, and command line."""
    from rich.cells import cell_len, set_cell_size

    now = time.time()
    rows = [("", "PID", "USER", "CPU", "AGE", "COMMAND")]
    for number, process in enumerate(found, 1):
        facts = process.as_dict(["username", "cpu_times", "create_time", "cmdline", "name"], ad_value=None)
        cpu, began = facts["cpu_times"], facts["create_time"]
        rows.append(
            (
                str(number),
                str(process.pid),
                printable(facts["username"] or "?"),
                _short(cpu.user + cpu.system) if cpu else "?",
                _short(max(now - began, 0)) if began else "?",
                printable(" ".join(facts["cmdline"] or [f"[{facts['name']}]"])[: 2 * COMMAND_SHOWN]),
            )
        )
    widths = [max(cell_len(row[column]) for row in rows) for column in range(5)]
    lines = []
    for row in rows:
        cells = [set_cell_size(text, width) for text, width in zip(row, widths, strict=False)]
        command = row[5] if cell_len(row[5]) <= COMMAND_SHOWN else set_cell_size(row[5], COMMAND_SHOWN - 1) + "…"
        lines.append("  ".join([*cells, command]))
    return lines


def _short(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
