"""The command line. Commands are loaded on use: a recording must reach its sampler before anything else is imported."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from remoteprof import __version__
from remoteprof.cli.text import say
from remoteprof.errors import RemoteprofError

COMMANDS = {
    "attach": ("record", "Record a running process and write its profile."),
    "run": ("record", "Start a program, record it, and exit with its status."),
    "dump": ("look", "Show what every thread is doing, once."),
    "top": ("top", "Show live what a process does."),
    "modules": ("look", "Show what is mapped into a process."),
    "doctor": ("look", "Show what works here, and what would mend the rest."),
    "goroutines": ("golang", "Show every goroutine of a Go program, or write their profile."),
    "heap": ("buckets", "Write what a Go program has on its heap."),
    "allocs": ("buckets", "Write what a Go program has allocated."),
    "block": ("buckets", "Write what the goroutines of a Go program waited for."),
    "mutex": ("buckets", "Write who held the mutexes that a Go program waited for."),
    "convert": ("profiles", "Write a profile in another format."),
    "merge": ("profiles", "Add profiles up."),
    "diff": ("profiles", "Show what changed between two profiles."),
    "check": ("check", "Fail if a profile does not hold limits, or grew against others."),
}
"""Command → (module of this package, what it does)."""


LINUX_ONLY = ("goroutines",)
"""What does not work on Windows yet."""


class Commands(click.Group):
    """A group whose commands are loaded on use, and whose errors are two lines: `error: …` and `hint: …`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Those that work here, in the order of COMMANDS."""
        return [name for name in COMMANDS if sys.platform != "win32" or name not in LINUX_ONLY]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loads the command."""
        if cmd_name not in COMMANDS:
            return None
        if sys.platform == "win32" and cmd_name in LINUX_ONLY:
            raise RemoteprofError(
                f"remoteprof {cmd_name} does not work on Windows yet",
                f"what does: {', '.join(self.list_commands(ctx))}",
            )
        command = getattr(import_module(f"remoteprof.cli.{COMMANDS[cmd_name][0]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From COMMANDS, without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, text) for name, (_, text) in COMMANDS.items() if name in self.list_commands(ctx)]
            )

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Runs a command and exits: with what it returns, or with the code of the error it raised."""
        try:
            code = super().main(args, prog_name or "remoteprof", complete_var, standalone_mode=False, **extra)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "remoteprof"
            code = fail(error.format_message(), f"see {path} --help", 2)
        except click.ClickException as error:
            code = fail(error.format_message(), "", error.exit_code)
        except RemoteprofError as error:
            code = fail(error.message, error.hint, error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            code = fail("interrupted before there was anything to write", "", 130)
        except OSError as error:
            code = fail(str(error), "", 1)
        sys.exit(code if isinstance(code, int) else 0)


def fail(message: str, hint: str, code: int) -> int:
    """Prints an error, and gives its exit code."""
    warn(f"error: {message.rstrip('.')}", hint)
    return code


def warn(message: str, hint: str = "") -> None:
    """Prints a message, and a hint, to stderr; nowhere if that is closed."""
    say(*message.splitlines(), *([f"hint: {hint}"] if hint else []))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """A sampling profiler that works from outside the program."""


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is shown escaped, not as a crash.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    cli()
