"""Folded stacks: a line for each, `root;caller;leaf value`, in the profile's default type.

The layout is that of Brendan Gregg's stackcollapse programs, which flamegraph.pl, inferno and speedscope read.
"""

from __future__ import annotations

from remoteprof.formats.frames import Frames, default_column
from remoteprof.profile.model import Profile
from remoteprof.sinks import Stream

PART = 4096
"""Lines that are written at once."""


def write(profile: Profile, stream: Stream) -> None:
    """Writes the stacks in order of their text; threads are added up, and a stack whose value is 0 is left out. A `;`
    in a name is written `\\x3b`, so that every `;` ends a frame. Raises RemoteprofError for a profile without types."""
    column = default_column(profile)
    frames = Frames()
    sums: dict[tuple[int, ...], int] = {}
    for sample in profile.samples:
        stack = frames.stack(sample)
        sums[stack] = sums.get(stack, 0) + sample.values[column]
    names = [frame.name.replace(";", "\\x3b") for frame in frames.known]
    # Two functions of one name are one frame here.
    texts: dict[str, int] = {}
    for stack, value in sums.items():
        text = ";".join([names[number] for number in stack])
        texts[text] = texts.get(text, 0) + value
    lines = [f"{text} {value}\n" for text, value in sorted(texts.items()) if value]
    for start in range(0, len(lines), PART):
        stream.write("".join(lines[start : start + PART]).encode())
