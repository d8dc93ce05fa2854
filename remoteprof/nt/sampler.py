"""The sampler process on Windows: starting it, talking to it over two pipes, outliving it.

A thread that is held still stays so if the process that holds it is ended: so the sampler says in a file (its record)
which one that is, and this process lets it go on. If that is ended too, `remoteprof doctor` does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from remoteprof.errors import RemoteprofError, SamplerDied
from remoteprof.sampler_process import SamplerProcess

PATIENCE = 2.0
"""Seconds that a sampler gets to end by itself once its pipes are closed."""

if sys.platform == "win32":
    import msvcrt

    from remoteprof import _native
    from remoteprof.nt.launch import Command

    _SAMPLER = """import sys, msvcrt
sys.path.append({folder!r})
import _native
_native.sampler_main(msvcrt.get_osfhandle(0), msvcrt.get_osfhandle(1), {record!r})
"""

    class Sampler(SamplerProcess):
        """A sampler process, from construction to close(). Leaves no handler or child behind."""

        _BROKEN = (EOFError, OSError)

        def __init__(self, *, terminal: bool = False) -> None:
            """Starts it. Raises RemoteprofError where it cannot be started."""
            self._command: Command | None = None
            self._is_held = False
            # Not the launcher of a venv, which would only start the same as a child of its own.
            program: str = getattr(sys, "_base_executable", "") or sys.executable
            if not program:
                raise RemoteprofError("cannot start the sampler process: sys.executable is not set")
            try:
                self._record = _native.new_record()
            except OSError as error:
                raise RemoteprofError(
                    f"cannot write into the temporary folder: {error.strerror}", "set TMP to a folder of your own"
                ) from None
            code = _SAMPLER.format(folder=str(Path(_native.__file__).parent), record=self._record)
            try:
                process = subprocess.Popen(
                    # Isolated and without site: it imports nothing but the native module.
                    [program, "-I", "-S", "-c", code],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    bufsize=0,
                    # A Ctrl-C is for us, and for the target.
                    creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
                )
            except OSError as error:
                _native.settle_record(self._record)
                raise RemoteprofError(f"cannot start the sampler process: {error.strerror}") from None
            assert process.stdin is not None and process.stdout is not None
            with process.stdin as commands, process.stdout as events:
                # Which keeps handles of its own.
                handles = [msvcrt.get_osfhandle(end.fileno()) for end in (commands, events)]
                super().__init__(process, _native.Link(*handles))

        def allow_tracing_us(self) -> None:
            """Windows has nothing to allow: who may open a process may read it."""

        def launch(self, arguments: list[bytes], environment: list[bytes], stops: bool) -> None:
            """Starts CMD suspended, with the environment that this process has, and asks the sampler to hold it. Raises
            OSError, SamplerDied."""
            command = self._command = Command([os.fsdecode(argument) for argument in arguments], suspended=True)
            self.ask(lambda link: link.hold(command.pid))

        def launched(self) -> None:
            """The sampler holds CMD: it will run, whatever becomes of us."""
            self._is_held = True

        def wait_for_command(self) -> int:
            """The exit code of CMD."""
            assert self._command is not None
            return self._command.wait()

        def _death(self) -> SamplerDied:
            if self._command is not None and self._is_held:
                self._command.let_go()
            return super()._death()

        def close(self) -> None:
            """Ends the sampler process, by force if it does not end by itself. May be called twice."""
            if self._command is not None and not self._is_held:
                self._command.kill()
                self._command = None
            if self._process.returncode is not None:
                return
            self.peak_memory()
            self.cpu_ns()
            self._link = None  # closes the pipes, at which the sampler ends
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            _native.settle_record(self._record)
