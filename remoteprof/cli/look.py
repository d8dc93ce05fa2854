"""`dump` and `modules`."""

from __future__ import annotations

import json
from typing import Any

import click

from remoteprof.cli.options import pid as process_id
from remoteprof.cli.text import printable
from remoteprof.sinks.file import writing_stdout


def _print(lines: list[str]) -> None:
    with writing_stdout():
        for line in lines:
            click.echo(line)


def _print_json(content: Any) -> None:
    # ASCII only: nothing in it can steer a terminal.
    _print([json.dumps(content, indent=1)])


@click.command()
@click.argument("pid", type=process_id)
@click.option("--native/--no-native", default=True, help="Native frames too.  [default: on]")
@click.option("--native-all", is_flag=True, help="The interpreter's own machinery too.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def dump(pid: int, native: bool, native_all: bool, as_json: bool) -> None:
    """Show the stack of every thread of process PID, once; the innermost call first."""
    from remoteprof.session import dump as read

    stacks = read(pid, native=native, native_all=native_all)
    if as_json:
        _print_json([stack.as_dict() for stack in stacks])
        return
    lines = []
    for stack in stacks:
        facts = [fact for fact in (stack.state, "holds the GIL" if stack.holds_gil else "") if fact]
        lines.append(printable(f"thread {stack.thread_id} {stack.name!r}{': ' if facts else ''}{', '.join(facts)}"))
        for frame in stack.frames:
            place = f"{frame.file}:{frame.line}" if frame.line else frame.file or frame.module
            name = frame.function or f"{frame.address:#x}"
            lines.append(printable(f"    {name}{f' ({place})' if place else ''}"))
        lines.append("")
    _print(lines[:-1])


@click.command()
@click.argument("pid", type=process_id)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def modules(pid: int, as_json: bool) -> None:
    """Show what is mapped into process PID: start, end, offset, build id, path."""
    from remoteprof.modules import modules_of

    found = modules_of(pid)
    if as_json:
        _print_json([module._asdict() for module in found])
        return
    _print(
        [
            printable(
                f"{module.start:x} {module.end:x} {module.offset:x} {module.build_id or '-'} {module.path or '-'}"
            )
            for module in found
        ]
    )
