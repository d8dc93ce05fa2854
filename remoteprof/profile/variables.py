"""The variables of frames, as they were read from memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from remoteprof.text import printable

if TYPE_CHECKING:
    from remoteprof._native import Batch

Kind = Literal["argument", "local", "cell", "free", "global"]
"""What a variable is to its frame: an argument of the function; local to it, or to a class body; local, and used by
inner functions too; one of an outer function; a global, where the frame is that of a module."""


class Variable(NamedTuple):
    """A variable that has a value."""

    name: str
    kind: Kind
    value: str
    """As repr() has it, within bounds: what is left out is marked by …, what could not be read by <unreadable>."""
    type: str
    """Name of the value's type, with its module unless that is builtins; "" = not known."""
    cut: bool
    """Whether there is more of the value."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict()


class FrameVariables(NamedTuple):
    """The variables of one frame."""

    variables: list[Variable]
    left_out: int
    """How many more there are."""


class Reading(NamedTuple):
    """How reading the variables of one thread went."""

    unreadable: int
    """Values, and parts of values, that could not be read."""
    changing: int
    """Values that changed faster than they could be read."""
    frames_left_out: int
    """Frames of which not all was read: there was too much, or no more time."""
    over_pause: bool
    """Whether the time was up before all was read."""

    @property
    def shortcomings(self) -> list[str]:
        """What is missing, in words."""
        missing = []
        if self.unreadable:
            missing.append(f"{self.unreadable} values could not be read")
        if self.changing:
            missing.append(f"{self.changing} values changed faster than they could be read")
        if self.frames_left_out:
            reason = "the longest pause was over" if self.over_pause else "there was too much"
            missing.append(f"not all variables of {self.frames_left_out} frames were read: {reason}")
        return missing


class ThreadVariables(NamedTuple):
    """The variables of one stack, by the index of their frame in it."""

    frames: dict[int, FrameVariables]
    reading: Reading


def thread_variables(batch: Batch) -> dict[int, ThreadVariables]:
    """What was read of the variables of each thread, by its id."""
    found = {}
    for tid, frames, unreadable, changing, left_out_frames, over_pause in batch.locals:
        shown = {
            index: FrameVariables([_variable(*variable) for variable in variables], left_out)
            for index, variables, left_out in frames
        }
        found[tid] = ThreadVariables(shown, Reading(unreadable, changing, left_out_frames, over_pause))
    return found


def _variable(name: str, kind: str, value: str, of_type: str, cut: bool) -> Variable:
    # repr() escapes just what is not printable; which of what is not ASCII that is, Python knows.
    return Variable(printable(name), cast(Kind, kind), printable(value), printable(of_type), cut)
