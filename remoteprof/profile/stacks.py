"""A Batch of one round as the stacks of threads, for people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from remoteprof.profile.native import NativeFrames
from remoteprof.profile.variables import FrameVariables, Reading, thread_variables

if TYPE_CHECKING:
    from remoteprof._native import Batch
    from remoteprof.symbols import Names


class Frame(NamedTuple):
    """A frame; `line` and `address` 0 = unknown, `module` "" = none. `locals`: None where they were not asked for, or
    could not be read, and for all that is not Python."""

    function: str
    file: str
    line: int
    address: int = 0
    module: str = ""
    locals: FrameVariables | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        told = self._asdict()
        del told["locals"]
        if self.locals is not None:
            told["locals"] = [variable.as_dict() for variable in self.locals.variables]
            told["locals_left_out"] = self.locals.left_out
        return told


@dataclass(slots=True)
class ThreadStack:
    """What a thread was doing: its stack, leaf first. `state` is "" where the system did not tell."""

    pid: int
    thread_id: int
    name: str
    state: str
    holds_gil: bool
    frames: list[Frame] = field(default_factory=list)
    reading: Reading | None = None
    """How reading the variables of its frames went; None where that was not asked for, and of what has none."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "pid": self.pid,
            "thread_id": self.thread_id,
            "name": self.name,
            "state": self.state,
            "holds_gil": self.holds_gil,
            "frames": [frame.as_dict() for frame in self.frames],
            **({"locals_read": self.reading._asdict()} if self.reading else {}),
        }


def thread_stacks(batch: Batch, names: Names | None = None, native_all: bool = False) -> list[ThreadStack]:
    """The last stack of each thread that was sampled, in the order of thread ids. `names`: the functions at the batch's
    native frames; `native_all`: also those that only lead from one Python function to the next."""
    native = NativeFrames(batch, names or {}, native_all)
    starts = memoryview(batch.stack_starts).cast("I")
    indices = memoryview(batch.stack_frames).cast("I")
    rows = batch.rows
    thread, stack, state = (memoryview(rows[name]).cast("I") for name in ("thread", "stack", "state"))
    samples, gil = (memoryview(rows[name]).cast("Q") for name in ("samples", "gil"))
    # Each of these is made anew when it is asked for.
    frames, mappings, threads, states = batch.frames, batch.mappings, batch.threads, batch.states
    variables = thread_variables(batch)
    found: dict[int, ThreadStack] = {}
    for row in range(len(thread)):
        if not samples[row]:
            continue  # CPU time that no stack was seen for
        tid, name = threads[thread[row]]
        one = found[tid] = ThreadStack(batch.pid, tid, name, states[state[row]], gil[row] > 0)
        of_thread = variables.get(tid)
        one.reading = of_thread.reading if of_thread else None
        of_row = indices[starts[stack[row]] : starts[stack[row] + 1]].tolist()
        merged = native.merged(of_row)
        for place, index in enumerate(of_row):
            kind, function, file, line, _, address, mapping = frames[index]
            module = mappings[mapping].path if mapping >= 0 else ""
            if kind not in ("native", "loop"):
                of_frame = of_thread.frames.get(place) if of_thread and kind == "python" else None
                one.frames.append(Frame(function, file, max(line, 0), locals=of_frame))
                continue
            lines = native.shown(index) if merged else native.lines(index)
            for known in lines or []:
                one.frames.append(Frame(known.name, known.file, known.line, address, module))
            if lines == []:
                one.frames.append(Frame("", "", 0, address, module))
    return [found[tid] for tid in sorted(found)]
