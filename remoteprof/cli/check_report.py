"""How a check went, for people (text, Markdown) and for programs (JSON)."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from remoteprof.cli.changes import value_text
from remoteprof.text import printable

if TYPE_CHECKING:
    from remoteprof.profile.check import BudgetResult, Growth, LimitResult, Verdict

MAX_ROWS = 50
"""Functions that text and Markdown name; JSON has all."""
MAX_NAME = 200
"""Characters of a name in Markdown."""


def as_lines(verdict: Verdict) -> list[str]:
    """The lines of a text. Names are as in the profile: not safe for a terminal."""
    lines = [_headline(verdict)]
    lines += [f"{_mark(one.kept)} {_limit_text(one)}" for one in verdict.limits]
    lines += [f"{_mark(one.kept)} {_budget_text(one)}" for one in verdict.budgets]
    if verdict.bases:
        lines.append(f"{_mark(not verdict.growths)} {_against_text(verdict)}")
    for grown in verdict.growths[:MAX_ROWS]:
        place = f" ({grown.code.place})" if grown.code.place else ""
        lines.append(f"  {_growth(grown)}  {_shares(grown.before, grown.now)}  {_how(grown)}  {grown.code.name}{place}")
        lines += [f"      line {line.line}: {_shares(line.before, line.now)}" for line in grown.lines]
    if len(verdict.growths) > MAX_ROWS:
        lines.append(f"  … and {len(verdict.growths) - MAX_ROWS} more functions")
    return lines + [f"note: {note}" for note in verdict.notes]


def as_markdown(verdict: Verdict, path: str) -> str:
    """A section of Markdown, in which names are text and nothing else."""
    lines = [
        f"### remoteprof check: {'passed' if verdict.passed else 'failed'}",
        "",
        f"{_text(path)} · {_headline(verdict)}",
        "",
    ]
    lines += [f"- {_mark(one.kept)}: {_text(_limit_text(one))}" for one in verdict.limits]
    lines += [f"- {_mark(one.kept)}: {_text(_budget_text(one))}" for one in verdict.budgets]
    if verdict.bases:
        lines.append(f"- {_mark(not verdict.growths)}: {_text(_against_text(verdict))}")
    if verdict.growths:
        lines += ["", "| growth | share before | now | | function | lines |", "|---:|---:|---:|---|---|---|"]
        for grown in verdict.growths[:MAX_ROWS]:
            where = ", ".join(f"{line.line} ({100 * line.before:.1f} → {100 * line.now:.1f} %)" for line in grown.lines)
            place = f"<br>{_code(grown.code.place)}" if grown.code.place else ""
            lines.append(
                f"| {_growth(grown)} | {100 * grown.before:.2f} % | {100 * grown.now:.2f} % | {_how(grown)}"
                f" | {_code(grown.code.name)}{place} | {where} |"
            )
        if len(verdict.growths) > MAX_ROWS:
            lines += ["", f"… and {len(verdict.growths) - MAX_ROWS} more functions"]
    lines += ["", *(f"> {_text(note)}" for note in verdict.notes), ""]
    return "\n".join(lines) + "\n"


def as_json_text(verdict: Verdict, path: str, bases: list[str]) -> str:
    """One JSON object: shares and rates are 0 to 1, values in `unit`, `growth` null for what was not there before."""
    found: dict[str, Any] = {
        "profile": path,
        "passed": verdict.passed,
        "type": verdict.kind.type,
        "unit": verdict.kind.unit,
        "total": verdict.total,
        "limits": [
            {"pattern": one.limit.pattern, "max_share": one.limit.share, "max_value": one.limit.value}
            | {"value": one.value, "share": one.share, "functions": one.functions, "kept": one.kept}
            for one in verdict.limits
        ],
        "budgets": [
            {
                "type": one.kind.type,
                "unit": one.kind.unit,
                "max": one.budget.value,
                "value": one.value,
                "kept": one.kept,
            }
            for one in verdict.budgets
        ],
        "against": bases,
        "notes": verdict.notes,
    }
    if verdict.bases:
        found |= {
            "base_totals": verdict.base_totals,
            "max_regression": verdict.max_growth,
            "false_alarms": verdict.false_alarms,
            "comparisons": verdict.compared,
            "dispersion": verdict.dispersion,
            "effective_samples": verdict.samples,
            "regressions": [
                {"function": one.code.name, "place": one.code.place, "cumulative": one.cumulative}
                | {"share_before": one.before, "share": one.now}
                | {"growth": None if math.isinf(one.growth) else one.growth, "chance": one.chance, "alarm": one.alarm}
                | {"lines": [line._asdict() for line in one.lines]}
                for one in verdict.growths
            ],
        }
    return json.dumps(found, indent=1)


def _headline(verdict: Verdict) -> str:
    text = f"{verdict.kind.type}: {value_text(verdict.total, verdict.kind)}"
    if verdict.bases:
        mean = sum(verdict.base_totals) // len(verdict.base_totals)
        text += (
            f", {verdict.bases} base profile{'s' if verdict.bases > 1 else ''} (mean {value_text(mean, verdict.kind)})"
        )
    return text


def _against_text(verdict: Verdict) -> str:
    grown = len(verdict.growths)
    return (
        f"{grown or 'no'} function{'' if grown == 1 else 's'} grew by more than {100 * verdict.max_growth:g} % and"
        f" more than noise explains ({verdict.compared} comparisons, {100 * verdict.false_alarms:g} % false alarms"
        " over all,"
        f" noise {verdict.dispersion:.1f} times that of {verdict.samples:.0f} independent samples)"
    )


def _limit_text(one: LimitResult) -> str:
    limit = one.limit
    most = f"{100 * limit.share:g} %" if limit.share is not None else value_text(limit.value or 0, one.kind)
    return f"{limit.pattern}: {100 * one.share:.2f} %, {value_text(one.value, one.kind)}, at most {most}"


def _budget_text(one: BudgetResult) -> str:
    return f"{one.kind.type}: {value_text(one.value, one.kind)}, at most {value_text(one.budget.value, one.kind)}"


def _mark(kept: bool) -> str:
    return "ok" if kept else "FAILED"


def _growth(grown: Growth) -> str:
    return "new" if math.isinf(grown.growth) else f"{100 * grown.growth:+.1f} %"


def _shares(before: float, now: float) -> str:
    return f"{100 * before:.2f} → {100 * now:.2f} %"


def _how(grown: Growth) -> str:
    return "with callees" if grown.cumulative else "by itself"


def _text(text: str) -> str:
    """`text` as Markdown that shows it: every character that could mean something is written as its number."""
    return "".join(one if one.isalnum() or one in " ,→…%·" else f"&#{ord(one)};" for one in printable(text))


def _code(text: str) -> str:
    shown = text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}…"
    return f"<code>{_text(shown)}</code>"
