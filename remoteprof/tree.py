"""A process and its descendants: the stacks of all their threads, once."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remoteprof.errors import ProcessNotFound, RemoteprofError, SamplerDied
from remoteprof.session import LOCALS_PAUSE, Session, look_once, thread_stacks_of

if TYPE_CHECKING:
    import psutil

    from remoteprof.profile.stacks import ThreadStack

MAX_PROCESSES = 1000
"""Most processes of one tree that are read."""


@dataclass(slots=True)
class ProcessStacks:
    """A process of a tree; `depth`: how far below the first. `error` says why there are no stacks, "" = there are."""

    pid: int
    parent: int
    depth: int
    command: list[str]
    stacks: list[ThreadStack] = field(default_factory=list)
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "pid": self.pid,
            "parent": self.parent,
            "command": self.command,
            "error": self.error,
            "threads": [stack.as_dict() for stack in self.stacks],
        }


def dump_tree(
    pid: int,
    *,
    native: bool = True,
    native_all: bool = False,
    locals: bool = False,
    max_pause: float = LOCALS_PAUSE,
) -> list[ProcessStacks]:
    """The stacks of process `pid` and all its descendants, read in one round; parents before their children.

    A descendant that cannot be read has an `error`; those over MAX_PROCESSES have that of being too many. This process,
    and what runs below it, is left out where it is a descendant. Raises as dump() does for `pid` itself.
    """
    with Session(look_once(native, locals, max_pause)) as session:
        session.attach(pid)
        found = _processes(pid)
        for count, process in enumerate(found[1:], 1):
            if count >= MAX_PROCESSES:
                process.error = f"not read: only {MAX_PROCESSES} processes are"
                continue
            try:
                session.attach(process.pid)
            except SamplerDied:
                raise
            except RemoteprofError as error:
                process.error = error.message
        session.start()
        recording = session.run(modules=native)
    stacks: dict[int, list[ThreadStack]] = {}
    for stack in thread_stacks_of(recording, native_all):
        stacks.setdefault(stack.pid, []).append(stack)
    for process in found:
        process.stacks = stacks.get(process.pid, [])
        if not process.stacks and not process.error:
            process.error = f"process {process.pid} has ended"
    return found


def _processes(pid: int) -> list[ProcessStacks]:
    """The tree as it is now, parents before their children, each with what it runs."""
    import psutil

    try:
        root = psutil.Process(pid)
        below = root.children(recursive=True)
    except psutil.Error:
        raise ProcessNotFound(f"no process {pid}", "list processes with ps -e") from None
    children: dict[int, list[psutil.Process]] = {}
    for process in below:
        with contextlib.suppress(psutil.Error):
            children.setdefault(process.ppid(), []).append(process)
    found: list[ProcessStacks] = []
    waiting = [(root, 0)]
    while waiting:
        process, depth = waiting.pop()
        if process.pid == os.getpid() and depth:
            continue
        # One that ends in this very moment is shown for what it was.
        command, parent = [], 0
        with contextlib.suppress(psutil.Error):
            parent = process.ppid()
            command = process.cmdline() or [f"[{process.name()}]"]
        found.append(ProcessStacks(process.pid, parent, depth, command))
        waiting += [(child, depth + 1) for child in reversed(children.pop(process.pid, []))]
    return found
