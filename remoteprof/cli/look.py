"""`dump`, `modules` and `doctor`."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from remoteprof.cli.options import duration
from remoteprof.cli.selecting import takes_process
from remoteprof.cli.stack_text import colours, columns, stack_lines
from remoteprof.cli.text import say
from remoteprof.errors import RemoteprofError
from remoteprof.session import LOCALS_PAUSE
from remoteprof.sinks.file import writing_stdout
from remoteprof.text import printable

if TYPE_CHECKING:
    from remoteprof.doctor import Finding
    from remoteprof.golang.goroutines import Goroutine
    from remoteprof.symbols import Sources

MAX_INDENT = 20
"""Levels of a tree that are shown by indentation."""


def _print(lines: list[str]) -> None:
    with writing_stdout():
        for line in lines:
            click.echo(line)


def _print_json(content: Any) -> None:
    # ASCII only: nothing in it can steer a terminal.
    _print([json.dumps(content, indent=1)])


@click.command()
@takes_process()
@click.option("--native/--no-native", default=True, help="Native frames too.  [default: on]")
@click.option("--native-all", is_flag=True, help="The interpreter's own machinery too.")
@click.option("--children", is_flag=True, help="All its descendants too.")
@click.option(
    "--locals",
    "variables",
    is_flag=True,
    help="The variables of Python frames too, with their values as repr() has them, within bounds. They are read from "
    "memory: no code of the process runs.",
)
@click.option(
    "--max-pause",
    type=duration,
    default=round(LOCALS_PAUSE * 1e9),
    help="Longest stop of a running thread for its variables.  [default: 10ms]",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def dump(
    pid: int,
    native: bool,
    native_all: bool,
    children: bool,
    variables: bool,
    max_pause: int,
    as_json: bool,
) -> None:
    """Show the stack of every thread of process PID, once; the innermost call first. Of a Go program every goroutine
    too."""
    look = {"native": native, "native_all": native_all, "locals": variables}
    if children:
        _dump_tree(pid, look, max_pause / 1e9, as_json)
        return
    from remoteprof.golang.program import program_of
    from remoteprof.session import dump as read

    is_go = program_of(pid) is not None
    stacks = read(pid, **look, max_pause=max_pause / 1e9)
    goroutines = _goroutines(pid) if is_go else []
    if stacks and stacks[0].pid != pid:
        say(f"note: process {pid} only launches Python: this is the interpreter that it started, {stacks[0].pid}")
    if as_json:
        _print_json([*(stack.as_dict() for stack in stacks), *(one.as_dict() for one in goroutines)])
        return
    width, paint = columns(), colours()
    lines = [line for stack in stacks for line in stack_lines(stack, width, paint)]
    if goroutines:
        from remoteprof.golang.text import of_goroutine

        for one in goroutines:
            lines.extend([*of_goroutine(one), ""])
    _print(lines[:-1])


def _dump_tree(pid: int, look: dict[str, bool], max_pause: float, as_json: bool) -> None:
    from remoteprof.tree import dump_tree

    found = dump_tree(pid, **look, max_pause=max_pause)
    if as_json:
        _print_json([process.as_dict() for process in found])
        return
    lines = []
    width, paint = columns(), colours()
    for process in found:
        indent = "  " * min(process.depth, MAX_INDENT)
        lines.append(printable(f"{indent}process {process.pid}: {shlex.join(process.command)}"))
        if process.error:
            lines.append(printable(f"{indent}  {process.error}"))
        inner = width - len(indent) - 2
        stacks = [stack_lines(stack, inner, paint) for stack in process.stacks]
        lines += [f"{indent}  {line}".rstrip() for of_stack in stacks for line in of_stack[:-1]]
        lines.append("")
    _print(lines[:-1])


def _goroutines(pid: int) -> list[Goroutine]:
    """Those of a Go program; what stands in the way is only told, for there are the threads to show."""
    from remoteprof.golang.goroutines import read

    try:
        found = read(pid)
    except RemoteprofError as error:
        say(f"note: no goroutines are shown: {error.message}")
        return []
    say(*(f"note: {note}" for note in found.notes))
    return found.all


@click.command()
@takes_process()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def modules(pid: int, as_json: bool) -> None:
    """Show what is mapped into process PID: start, end, offset, build id, path; below each what it is unwound by, and
    where names come from; of a Go program also how it was built."""
    from remoteprof.golang.program import program_of
    from remoteprof.symbols import sources_of

    found = sources_of(pid)
    go = program_of(pid)
    # The main binary is the first; its further ranges have its path.
    main = found[0][0].path
    if as_json:
        of_go = {"go": go._asdict()} if go else {}
        rows = [(module, _facts(sources), of_go if module.path == main else {}) for module, sources in found]
        _print_json([{**module._asdict(), **facts, **more} for module, facts, more in rows])
        return
    lines = []
    for module, sources in found:
        lines.append(f"{module.start:x} {module.end:x} {module.offset:x} {module.build_id or '-'} {module.path or '-'}")
        lines.append(f"    {_sentence(sources)}")
        if go and module.path == main:
            lines.append(f"    {go.sentence}")
    _print([printable(line) for line in lines])


@click.command()
@takes_process(required=False)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def doctor(pid: int | None, as_json: bool) -> int:
    """Show what works on this machine, and with process PID, and what would mend the rest.

    Needs no rights. Exits as `remoteprof attach PID` would: with 0 where the process can be recorded. On Windows it
    also lets a thread of PID go on that was left suspended when all of remoteprof was ended.
    """
    if sys.platform == "win32":
        from remoteprof.nt.doctor import machine, target
    else:
        from remoteprof.doctor.machine import machine
        from remoteprof.doctor.target import target

    error = None
    of_process: dict[str, list[Finding]] = {}
    if pid is not None:
        # First: what it mends is nothing that the machine suffers from.
        of_process["process"], error = target(pid)
    groups = {"machine": machine(), **of_process}
    if as_json:
        _print_json({name: [finding._asdict() for finding in found] for name, found in groups.items()})
    else:
        lines = []
        for found in groups.values():
            for finding in found:
                lines.append(printable(f"{finding.status:<6} {finding.name:<14} {finding.fact}"))
                if finding.mend:
                    lines.append(printable(f"{'':<21} mend: {finding.mend}"))
            lines.append("")
        _print(lines[:-1])
    return error.exit_code if error else 0


def _facts(sources: Sources) -> dict[str, Any]:
    return {
        "unwind_tables": sources.unwind_tables,
        "symbol_tables": sources.symbol_tables,
        "debug_info": sources.debug_info,
        "debug_file": sources.debug_file,
        "unused": sources.refused,
    }


def _sentence(sources: Sources) -> str:
    if sources.refused:
        return f"not used: {sources.refused}"
    symbols = ", ".join(sources.symbol_tables)
    if sources.symtab_in_debug_file:
        symbols = symbols.replace(".symtab", ".symtab of the debug file")
    place = sources.debug_file or "its own"
    return "; ".join(
        (
            f"unwind tables: {', '.join(sources.unwind_tables) or 'none'}",
            f"symbols: {symbols or 'none'}",
            f"debug info: {place if sources.debug_info else 'none'}",
        )
    )
