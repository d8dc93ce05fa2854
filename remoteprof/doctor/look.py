"""One look at a process, and what was seen: the same on every system."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from remoteprof.doctor import Finding, limit, ok
from remoteprof.errors import RemoteprofError
from remoteprof.text import base_name

if TYPE_CHECKING:
    from remoteprof._native import Batch
    from remoteprof.modules import Module

SHOWN = 4
"""Most modules that are named in one finding."""


def look(pid: int) -> Batch:
    """One tick of a recording."""
    from remoteprof.session import LOCALS_PAUSE, Session, look_once

    with Session(look_once(native=True, locals=False, max_pause=LOCALS_PAUSE)) as session:
        session.attach(pid)
        session.start()
        return session.run(modules=False).batches[0]


def seen(batch: Batch) -> list[Finding]:
    """What that one tick showed."""
    found = [ok("access", f"{len(batch.threads)} thread{'s' * (len(batch.threads) != 1)}, read and let go")]
    found += [limit("runtime", note) for note in batch.notes]
    if batch.runtime:
        native = any(kind == "native" for kind, *_ in batch.frames)
        found.append(ok("runtime", f"{batch.runtime}: Python{' and native' * native} frames"))
    elif not batch.notes:
        found.append(ok("runtime", "native frames"))
    cut, whole = batch.stats["truncated"], batch.stats["complete"]
    unread = batch.stats["unreadable"]
    if unread:
        found.append(limit("stacks", f"{unread} of {cut + whole + unread} could not be read", "try again"))
    elif cut:
        reasons = ", ".join(batch.stats["cut"])
        found.append(limit("stacks", f"{cut} of {cut + whole} end before their bottom ({reasons})"))
    else:
        found.append(ok("stacks", f"{whole} of {whole} are complete"))
    return found


def named(modules: list[Module]) -> str:
    """Their names, the first few."""
    names = [base_name(module.path) for module in modules]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def trial() -> Finding:
    """Whether a process of our own can be read, in fact."""
    from remoteprof.session import dump

    # In a virtual environment on Windows sys.executable only starts another.
    python = getattr(sys, "_base_executable", sys.executable) if sys.platform == "win32" else sys.executable
    # Not a child of a shell, no site: up in some milliseconds.
    command = [python, "-I", "-S", "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        try:
            stacks = dump(child.pid)
        except RemoteprofError as error:
            return limit("trial", f"a process started from here: {error.message}", error.hint)
        finally:
            child.kill()
    if any(stack.frames for stack in stacks):
        return ok("trial", "a process started from here was stopped, read and let go")
    return limit("trial", "of a process started from here no stack could be read")
