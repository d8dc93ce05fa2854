"""CMD of `run` on Windows: found as a shell finds it, started suspended, so that it can be put into a job before its
first instruction."""

from __future__ import annotations

import shutil
import subprocess
import sys

_WAIT = 0.25
"""Seconds after which a signal is seen while CMD is waited for."""

if sys.platform == "win32":
    from remoteprof import _native

    _CREATE_SUSPENDED = 0x4

    def find_program(name: str) -> str | None:
        """The path of a program, by PATH and PATHEXT; None where there is none."""
        return shutil.which(name)

    class Command:
        """CMD: it has our console, our standard streams, and every handle that we were given to pass on."""

        def __init__(self, arguments: list[str], *, suspended: bool) -> None:
            """Starts it. Raises OSError."""
            flags = _CREATE_SUSPENDED if suspended else 0
            self._process = subprocess.Popen(
                arguments, executable=find_program(arguments[0]), close_fds=False, creationflags=flags
            )
            # Of a process that has not run there is one.
            self._threads = _native.Target(self.pid).threads()[:1] if suspended else []

        @property
        def pid(self) -> int:
            """Its process id."""
            return self._process.pid

        def let_go(self) -> None:
            """Lets it run if it never did: whoever was to do that has died."""
            for tid in self._threads:
                _native.resume_thread(tid)
            self._threads = []

        def kill(self) -> None:
            """Ends it before its first instruction."""
            self._process.kill()
            self._process.wait()

        def wait(self) -> int:
            """Its exit code, as a signed number of 32 bits: that of a crash is negative."""
            while True:
                try:
                    code = self._process.wait(_WAIT)
                except subprocess.TimeoutExpired:
                    continue
                return code - (1 << 32) if code >= 1 << 31 else code
