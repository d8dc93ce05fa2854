"""`attach` and `run`."""

from __future__ import annotations

import os
from typing import Any

import click

from remoteprof.cli.options import Choices, recording_options
from remoteprof.cli.output import Outputs, Progress, on_terminal
from remoteprof.cli.selecting import takes_process
from remoteprof.cli.signals import stop_requests
from remoteprof.errors import UsageError
from remoteprof.process import name_of, own_start_ns
from remoteprof.session import Options, Session

DEFAULT_DURATION = 10_000_000_000


def session_options(choices: Choices, duration_ns: int, children: bool) -> Options:
    """The choices that concern the sampler. `children`: what is done where neither --children nor --no-children is
    given. Raises UsageError."""
    if choices.children_match is not None and choices.children is False:
        raise UsageError("--children-match has nothing to choose from with --no-children", "leave one of them out")
    if choices.children is not None or choices.children_match is not None:
        children = choices.children is not False
    return Options(
        rate=choices.rate,
        duration_ns=duration_ns,
        idle=choices.idle,
        native=choices.native,
        nonblocking=choices.nonblocking,
        max_pause_ns=choices.max_pause,
        native_all=choices.native_all,
        max_stack=choices.max_stack,
        children=children,
        children_match=choices.children_match or "",
        times=choices.times,
    )


def outputs_of(choices: Choices) -> Outputs:
    """The outputs that were chosen. Raises UsageError, OutputError."""
    if choices.window is not None and choices.last is not None:
        raise UsageError("--window writes all, --last only the newest", "leave one of them out")
    if choices.when and choices.last is None:
        raise UsageError("--when is about what --last keeps", "give --last too, such as --last 60s")
    if choices.window is not None:
        from remoteprof.cli.windows import WindowOutputs

        return WindowOutputs(choices, choices.window)
    if choices.last is not None:
        from remoteprof.cli.flight import FlightOutputs

        return FlightOutputs(choices, choices.last)
    if choices.keep is not None:
        raise UsageError("--keep is about the files of windows", "give --window too")
    return Outputs(choices)


@click.command()
@takes_process()
@recording_options
def attach(pid: int, **given: Any) -> int:
    """Record process PID until the duration is over, Ctrl-C, SIGTERM, or its end, and write the profile."""
    choices = Choices(**given)
    outputs = outputs_of(choices)
    duration = choices.duration or (0 if choices.window or choices.last else DEFAULT_DURATION)
    with (
        stop_requests() as stopping,
        outputs.signals(),
        Session(session_options(choices, duration, False), since_ns=own_start_ns()) as session,
    ):
        session.attach(pid)
        session.start()
        with Progress(duration) as progress:
            shown = progress if on_terminal() and not choices.quiet else None
            outputs.record(session, name_of(pid), stopping, shown)
        outputs.write(session)
    return 0


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] CMD [ARGS]...")
@recording_options
@click.option("--strict", is_flag=True, help="Exit 1 if profiling fails, though CMD succeeded.")
def run(command: tuple[str, ...], strict: bool, **given: Any) -> int:
    """Start CMD, record it, write the profile, and exit with CMD's status (128+N for a signal).

    A duration ends the recording, not CMD.
    """
    from remoteprof.cli.launch import Launch

    choices = Choices(**given)
    outputs = outputs_of(choices)
    arguments = [os.fsencode(argument) for argument in command]
    return Launch(arguments, session_options(choices, choices.duration or 0, True), outputs, strict).run()
