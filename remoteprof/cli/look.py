"""`dump`, `modules` and `doctor`."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import click

from remoteprof.cli.selecting import takes_process
from remoteprof.cli.text import say
from remoteprof.errors import RemoteprofError
from remoteprof.sinks.file import writing_stdout
from remoteprof.text import printable

if TYPE_CHECKING:
    from remoteprof.golang.goroutines import Goroutine
    from remoteprof.profile.stacks import ThreadStack
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
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def dump(pid: int, native: bool, native_all: bool, children: bool, as_json: bool) -> None:
    """Show the stack of every thread of process PID, once; the innermost call first. Of a Go program every goroutine
    too."""
    if children:
        _dump_tree(pid, native, native_all, as_json)
        return
    from remoteprof.golang.program import program_of
    from remoteprof.session import dump as read

    is_go = program_of(pid) is not None
    stacks = read(pid, native=native, native_all=native_all)
    goroutines = _goroutines(pid) if is_go else []
    if as_json:
        _print_json([*(stack.as_dict() for stack in stacks), *(one.as_dict() for one in goroutines)])
        return
    lines = [line for stack in stacks for line in _stack_lines(stack)]
    if goroutines:
        from remoteprof.golang.text import of_goroutine

        for one in goroutines:
            lines.extend([*of_goroutine(one), ""])
    _print(lines[:-1])


def _dump_tree(pid: int, native: bool, native_all: bool, as_json: bool) -> None:
    from remoteprof.tree import dump_tree

    found = dump_tree(pid, native=native, native_all=native_all)
    if as_json:
        _print_json([process.as_dict() for process in found])
        return
    lines = []
    for process in found:
        indent = "  " * min(process.depth, MAX_INDENT)
        lines.append(printable(f"{indent}process {process.pid}: {shlex.join(process.command)}"))
        if process.error:
            lines.append(printable(f"{indent}  {process.error}"))
        lines += [f"{indent}  {line}".rstrip() for stack in process.stacks for line in _stack_lines(stack)[:-1]]
        lines.append("")
    _print(lines[:-1])


def _stack_lines(stack: ThreadStack) -> list[str]:
    """A line for the thread, one for each frame, and an empty one."""
    facts = [fact for fact in (stack.state, "holds the GIL" if stack.holds_gil else "") if fact]
    lines = [printable(f"thread {stack.thread_id} {stack.name!r}{': ' if facts else ''}{', '.join(facts)}")]
    for frame in stack.frames:
        place = f"{frame.file}:{frame.line}" if frame.line else frame.file or frame.module
        name = frame.function or f"{frame.address:#x}"
        lines.append(printable(f"    {name}{f' ({place})' if place else ''}"))
    return [*lines, ""]


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

    Needs no rights. Exits as `remoteprof attach PID` would: with 0 where the process can be recorded.
    """
    from remoteprof.doctor.machine import machine
    from remoteprof.doctor.target import target

    groups = {"machine": machine()}
    error = None
    if pid is not None:
        groups["process"], error = target(pid)
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
