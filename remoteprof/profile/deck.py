"""Inlined frames that a stack shows as callers, put back into the location that they belong to.

Go's tracebacks are fully expanded: a function inlined into another stands in the stack as if it had been called, at the
address of a no-op that the compiler left for it. pprof wants one location with a line for each function instead. The
rule is that of runtime/pprof (proto.go), with the correction for leaves that are such a no-op themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

GOEXIT = "runtime.goexit"
"""What every goroutine returns to: it shows that a stack is complete, and says nothing else."""
MAX_EXPANSION = 1000
"""Frames of one address; inlining goes some ten levels deep."""


class Frame(NamedTuple):
    """What is known of an address: `function` is the full symbol name; `entry` the address at which the function begins
    that the code is in; `real` is false for a function that was inlined there. "" and 0 = unknown."""

    function: str = ""
    file: str = ""
    line: int = 0
    entry: int = 0
    start_line: int = 0
    real: bool = True


Symbolize = Callable[[int], Sequence[Frame]]
"""An address inside of an instruction (not the one behind a call) → its frames, the innermost first; none: unknown."""


class Expansion(NamedTuple):
    """The frames of an address, and whether a name was looked for and not all of it was found. No frames: goexit."""

    frames: tuple[Frame, ...]
    tried: bool
    failed: bool


def expand(address: int, symbolize: Symbolize | None) -> Expansion:
    """The frames at `address`. One that is not known is a frame without a name."""
    found = symbolize(address)[:MAX_EXPANSION] if symbolize is not None else ()
    if not found:
        return Expansion((Frame(),), symbolize is not None, symbolize is not None)
    if found[0].function == GOEXIT:
        return Expansion((), False, False)
    last = next((number for number, frame in enumerate(found, 1) if frame.function == GOEXIT), len(found))
    first = found[0]
    return Expansion(tuple(found[:last]), True, not (first.function and first.file and first.line > 0))


class Deck:
    """The addresses of a stack, from the leaf on, that are one location as far as was seen."""

    def __init__(self) -> None:
        self.addresses: list[int] = []
        self.frames: list[Frame] = []
        self.tried = False
        self.failed = False
        self.first = Expansion((), False, False)
        """The expansion of the first address."""

    def clear(self) -> None:
        """Begins a new location."""
        self.addresses.clear()
        self.frames.clear()
        self.tried = self.failed = False

    def add(self, address: int, expansion: Expansion) -> bool:
        """Adds the next address of the stack; false where it belongs to another location, and nothing was added."""
        if self.frames:
            last, new = self.frames[-1], expansion.frames[0]
            # Equal names are a recursion: nothing is inlined into itself.
            if last.real or not last.entry or last.entry != new.entry or last.function == new.function:
                return False
        else:
            self.first = expansion
        self.addresses.append(address)
        self.frames.extend(expansion.frames)
        self.tried |= expansion.tried
        self.failed |= expansion.failed
        return True
