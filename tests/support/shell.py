"""A terminal with an interactive shell in it, as a user has one."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import time
from collections.abc import Iterator
from pathlib import Path

from support.targets import PATIENCE

INTERRUPT, SUSPEND = "\x03", "\x1a"


class Terminal:
    """What is typed and shown. `shown` grows as it is read."""

    def __init__(self, descriptor: int, pid: int) -> None:
        self._descriptor = descriptor
        self.pid = pid
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def wait_for(self, text: str) -> str:
        """Reads until `text` is shown; gives what came up to it, which is not looked at again."""
        end = time.monotonic() + PATIENCE
        while text not in self.shown:
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{text!r} was never shown, but {self.shown!r}"
            self.shown += os.read(self._descriptor, 1 << 16).decode(errors="replace")
        before, _, self.shown = self.shown.partition(text)
        return before


@contextlib.contextmanager
def shell(directory: Path) -> Iterator[Terminal]:
    """bash with job control, in that directory; its prompt is `$ `. All in it is hung up on in the end."""
    pid, descriptor = pty.fork()
    if not pid:
        os.chdir(directory)
        environment = {**os.environ, "PS1": "$ ", "TERM": "dumb", "HISTFILE": ""}
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], environment)
    terminal = Terminal(descriptor, pid)
    try:
        terminal.wait_for("$ ")
        terminal.type("stty -echo; set -b\n")
        terminal.wait_for("$ ")
        yield terminal
    finally:
        os.close(descriptor)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
