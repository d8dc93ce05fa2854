"""A flame graph as a plain SVG image: no script, one value type, every box with a title."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import accumulate, groupby
from typing import NamedTuple
from xml.sax.saxutils import escape

from remoteprof.formats.frames import Frame, Frames, default_column, shown
from remoteprof.profile.model import Profile
from remoteprof.sinks import Stream

WIDTH = 1200
ROW = 16
LETTER = 7.2
"""Pixels of a letter of 12 px monospace."""
NARROWEST = 0.4
"""Pixels of the narrowest box that is drawn."""
MAX_ROWS = 512
"""Frames of a stack that are drawn; what stands above them is said not to be."""
MAX_BOXES = 200_000
PART = 1000
"""Boxes that are written at once."""
ROOT = Frame("all", "", 0, "")


class Box(NamedTuple):
    """A frame of the graph: `left` and `width` in units of the value, signs left out of both; `value` with signs."""

    frame: Frame
    depth: int
    left: int
    width: int
    value: int


def write(profile: Profile, stream: Stream) -> None:
    """Writes the default value type, roots at the bottom. The boxes of a difference are red where the value grew and
    blue where it shrank. Raises RemoteprofError for a profile without value types."""
    column = default_column(profile)
    unit = shown(profile.sample_types[column].unit) or "units"
    frames = Frames()
    sums: dict[tuple[int, ...], tuple[int, int]] = {}
    for sample in profile.samples:
        stack, value = frames.stack(sample), sample.values[column]
        before = sums.get(stack, (0, 0))
        sums[stack] = (before[0] + value, before[1] + abs(value))
    stacks = sorted((stack, *both) for stack, both in sums.items() if both[1])
    signed = any(value < 0 for _, value, _ in stacks)
    boxes = list(_boxes(stacks, frames.known))
    whole, top = boxes[0].width, max(box.depth for box in boxes)
    cut = sum(len(stack) > MAX_ROWS for stack, _, _ in stacks)
    height = (top + 1) * ROW + 40
    title = f"{shown(profile.sample_types[column].type) or 'value'}: {boxes[0].value} {unit}"
    if cut:
        title += f" ({cut} stacks cut at {MAX_ROWS} frames)"
    if len(boxes) == MAX_BOXES:
        title += f" (cut at {MAX_BOXES} boxes)"
    label = _attribute(f"Flame graph, {title}")
    stream.write(
        f'<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
        f'height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n<g font-family="monospace" font-size="12">\n'
        f'<text x="4" y="18">{escape(title)}</text>\n'.encode()
    )
    for start in range(0, len(boxes), PART):
        part = boxes[start : start + PART]
        stream.write("".join(_drawn(box, whole, height, unit, signed) for box in part).encode())
    stream.write(b"</g>\n</svg>\n")


def _boxes(stacks: list[tuple[tuple[int, ...], int, int]], frames: list[Frame]) -> Iterator[Box]:
    """The boxes that are wide enough to be seen, callers first; the widest of one caller's callees first."""
    values = [0, *accumulate(value for _, value, _ in stacks)]
    widths = [0, *accumulate(width for _, _, width in stacks)]
    yield Box(ROOT, 0, 0, widths[-1], values[-1])
    least = widths[-1] * NARROWEST / WIDTH
    count = 1
    open_ranges = [(0, len(stacks), 0, 0)]
    while open_ranges:
        first, end, depth, left = open_ranges.pop()
        # A stack that ends here sorts before those that go on.
        while first < end and len(stacks[first][0]) == depth:
            first += 1
        found = []
        for number, group in groupby(range(first, end), key=lambda index: stacks[index][0][depth]):
            last = first + sum(1 for _ in group)
            found.append((widths[last] - widths[first], number, first, last))
            first = last
        found.sort(key=lambda one: (-one[0], one[1]))
        for width, number, begin, last in found:
            if width < least or count >= MAX_BOXES:
                break
            count += 1
            yield Box(frames[number], depth + 1, left, width, values[last] - values[begin])
            if depth + 1 < MAX_ROWS:
                open_ranges.append((begin, last, depth + 1, left))
            left += width


def _drawn(box: Box, whole: int, height: int, unit: str, signed: bool) -> str:
    scale = WIDTH / whole if whole else 0.0
    x, width = box.left * scale, box.width * scale if whole else WIDTH
    y = height - 10 - (box.depth + 1) * ROW
    share = 100 * box.value / whole if whole else 0.0
    place = f"\n{box.frame.file}{f':{box.frame.line}' * bool(box.frame.line)}" if box.frame.file else ""
    title = f"{box.frame.name} ({box.value} {unit}, {share:.2f} %){place}"
    fits = int((width - 6) / LETTER)
    name = box.frame.name if len(box.frame.name) <= fits else box.frame.name[: fits - 1] + "…"
    text = f'<text x="{x + 3:.1f}" y="{y + 12}">{escape(name)}</text>' if fits >= 3 else ""
    return (
        f'<g><title>{escape(title)}</title><rect x="{x:.2f}" y="{y}" width="{max(width - 0.3, 0.2):.2f}" '
        f'height="{ROW - 1}" fill="{_fill(box, signed)}"/>{text}</g>\n'
    )


def _fill(box: Box, signed: bool) -> str:
    if signed:
        change = max(-1.0, min(1.0, box.value / box.width if box.width else 0.0))
        return f"hsl({4 if change > 0 else 214},{abs(change) * 90:.0f}%,{92 - 22 * abs(change):.0f}%)"
    if box.frame.name.startswith("[") or box.frame is ROOT:
        return "#dcdfe4"
    seed = hashlib.blake2b((box.frame.module or box.frame.name).encode(), digest_size=2).digest()
    return f"hsl({int.from_bytes(seed, 'big') % 360},60%,80%)"


def _attribute(text: str) -> str:
    return escape(text, {'"': "&quot;", "\n": " "})
