"""`check`: the gate for CI."""

from __future__ import annotations

import glob
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remoteprof.cli.text import parse_duration, say
from remoteprof.errors import CheckFailed, OutputError, UsageError
from remoteprof.profile.check import FALSE_ALARMS, MAX_GROWTH, Budget, Limit
from remoteprof.profile.check import check as checked

if TYPE_CHECKING:
    from remoteprof.profile.model import Profile

MAX_BASES = 1000
"""Base profiles of one check."""


def share(value: str | float) -> float:
    """A part of a whole, such as 5% or 0.05; a default is a number already."""
    if isinstance(value, float):
        return value
    text = value.strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = math.nan
    if not 0 <= number < 1e6:
        raise click.BadParameter(f"{value!r} is not a share such as 5%")
    return number


def _value(text: str) -> int:
    """A value in a column's unit: a duration in nanoseconds, or a bare count."""
    return parse_duration(text)


def limit(value: str) -> Limit:
    """REGEX=LIMIT, where LIMIT is a share such as 20% or a duration such as 3s."""
    pattern, sign, most = value.rpartition("=")
    try:
        re.compile(pattern)
    except re.error as error:
        raise click.BadParameter(f"{pattern!r} is not a regular expression: {error}") from None
    if not sign or not pattern:
        raise click.BadParameter(f"{value!r} is not of the form REGEX=LIMIT, such as 'json\\..*=20%'")
    if most.strip().endswith("%"):
        return Limit(pattern, share=share(most))
    try:
        return Limit(pattern, value=_value(most))
    except ValueError:
        raise click.BadParameter(f"{most!r} is neither a share such as 20% nor a duration such as 3s") from None


def budget(value: str) -> Budget:
    """TYPE=VALUE: a duration for times such as cpu, else a whole number."""
    name, sign, most = value.partition("=")
    if not sign or not name:
        raise click.BadParameter(f"{value!r} is not of the form TYPE=VALUE, such as cpu=12s")
    try:
        return Budget(name, int(most) if name == "samples" else _value(most))
    except ValueError:
        raise click.BadParameter(f"{most!r} is not a duration such as 12s") from None


def expanded(patterns: tuple[str, ...]) -> list[str]:
    """The paths that `patterns` name, each once. Raises UsageError for a pattern that names none."""
    found: dict[str, None] = {}
    for pattern in patterns:
        paths = [pattern]
        if glob.has_magic(pattern) and not Path(pattern).exists():
            paths = sorted(glob.glob(pattern))  # noqa: PTH207 - a pattern of any place, not below one folder
        if not paths:
            raise UsageError(
                f"no base profile matches {pattern!r}", "record some first: remoteprof run -o base-1.pb.gz"
            )
        found.update(dict.fromkeys(paths))
    if len(found) > MAX_BASES:
        raise UsageError(f"{len(found)} base profiles", f"at most {MAX_BASES} are compared at once")
    return list(found)


@click.command()
@click.argument("profile", metavar="PROFILE")
@click.option("--against", multiple=True, metavar="BASE", help="A profile, or a quoted pattern of some; repeatable.")
@click.option(
    "--max-regression",
    type=share,
    default=MAX_GROWTH,
    metavar="SHARE",
    help="Growth allowed a function.  [default: 5%]",
)
@click.option("--max", "limits", type=limit, multiple=True, metavar="REGEX=LIMIT", help="Limit of functions: 20%, 3s.")
@click.option("--budget", "budgets", type=budget, multiple=True, metavar="TYPE=VALUE", help="Limit of all: cpu=12s.")
@click.option(
    "--false-alarms", type=share, default=FALSE_ALARMS, metavar="SHARE", help="Over all functions.  [default: 1%]"
)
@click.option("-t", "--type", "sample_type", metavar="TYPE", help="What to compare.  [default: cpu]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--summary", metavar="FILE", help="Append Markdown there.  [default: $GITHUB_STEP_SUMMARY, if set]")
def check(
    profile: str,
    against: tuple[str, ...],
    max_regression: float,
    limits: tuple[Limit, ...],
    budgets: tuple[Budget, ...],
    false_alarms: float,
    sample_type: str | None,
    as_json: bool,
    summary: str | None,
) -> None:
    """Exit 6 if PROFILE does not hold what is asked for.

    --against: a function fails if its share of the CPU time grew by more than --max-regression and by more than noise
    explains; give five base profiles or more of the same program, from which the noise is learned.

    --max: the functions whose whole name matches, with all that they call. --budget: the whole profile.
    """
    from remoteprof.cli.check_report import as_json_text, as_lines, as_markdown
    from remoteprof.cli.profiles import opened
    from remoteprof.sinks.file import writing_stdout
    from remoteprof.text import printable

    if not (against or limits or budgets):
        raise UsageError("nothing to check", "give --against BASE, --max REGEX=LIMIT or --budget cpu=12s")
    paths = expanded(against)
    others = [path for path in paths if not _same(path, profile)]
    if paths and not others:
        raise UsageError("the only base profile is the profile itself", "give --against another one")
    if len(others) < len(paths):
        say("note: the profile itself is left out of what it is compared with")
    paths = others

    def bases() -> Iterator[Profile]:
        for path in paths:
            yield opened(path)

    verdict = checked(
        opened(profile),
        bases(),
        max_growth=max_regression,
        limits=limits,
        budgets=budgets,
        sample_type=sample_type,
        false_alarms=false_alarms,
    )
    place = summary or os.environ.get("GITHUB_STEP_SUMMARY", "")
    if place:
        _append(place, as_markdown(verdict, profile))
    with writing_stdout():
        if as_json:
            click.echo(as_json_text(verdict, profile, paths))
        else:
            for line in as_lines(verdict):
                click.echo(printable(line))
    if not verdict.passed:
        hint = f"see what changed: remoteprof diff {paths[0]} {profile} --normalize" if verdict.growths else ""
        raise CheckFailed(f"check failed: {verdict.failures} of what was asked for does not hold", hint)
    say(*([] if as_json else ["check passed"]))


def _same(path: str, other: str) -> bool:
    try:
        return Path(path).samefile(other)
    except OSError:
        return False


def _append(path: str, text: str) -> None:
    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}", "name another file with --summary"
        ) from None
