"""A difference as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remoteprof.stats import duration_text

if TYPE_CHECKING:
    from remoteprof.profile.diff import Diff
    from remoteprof.profile.model import ValueType

_HEAD = ("flat", "", "flat share", "cum", "", "cum share", "function")


def table(diff: Diff, count: int, cumulative: bool = False) -> list[str]:
    """The lines of a table of the `count` largest changes. Names are as in the profile: not safe for a terminal."""
    kind = diff.sample_type
    change = diff.new_total - diff.base_total
    lines = [
        f"{kind.type}: {value_text(diff.base_total, kind)} → {value_text(diff.new_total, kind)}"
        f" ({_signed(change, kind)}{_percent(change, diff.base_total)})"
    ]
    if not diff.changes:
        return [*lines, "no function changed"]
    shown = (diff.by_cumulative() if cumulative else diff.changes)[:count]
    rows = [_HEAD]
    for one in shown:
        name, file, _ = one.function
        rows.append(
            (
                _signed(one.flat, kind),
                _percent(one.flat, diff.base_total).lstrip(", "),
                f"{100 * one.base_flat_share:.1f} → {100 * one.new_flat_share:.1f} %",
                _signed(one.cumulative, kind),
                _percent(one.cumulative, diff.base_total).lstrip(", "),
                f"{100 * one.base_cumulative_share:.1f} → {100 * one.new_cumulative_share:.1f} %",
                f"{name} ({file})" if file else name,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, row[-1]]))
    if len(diff.changes) > count:
        lines.append(f"… and {len(diff.changes) - count} more functions")
    return lines


def value_text(value: int, kind: ValueType) -> str:
    """A value with its unit, for people."""
    if kind.unit == "nanoseconds":
        return f"-{duration_text(-value)}" if value < 0 else duration_text(value)
    if kind.unit == "bytes":
        size, unit = float(value), "B"
        for larger in ("KiB", "MiB", "GiB", "TiB"):
            if abs(size) < 1024:
                break
            size, unit = size / 1024, larger
        return f"{size:.0f} B" if unit == "B" else f"{size:.2f} {unit}"
    return f"{value}" if kind.unit in ("count", "") else f"{value} {kind.unit}"


def _signed(value: int, kind: ValueType) -> str:
    return f"+{value_text(value, kind)}" if value > 0 else value_text(value, kind)


def _percent(value: int, base: int) -> str:
    return f", {100 * value / abs(base):+.1f} %" if base else ""
