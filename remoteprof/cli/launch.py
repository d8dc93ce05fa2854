"""What `run` does: CMD started as if remoteprof were not there, and its status passed on whatever becomes of the
recording."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import stat
import sys
from pathlib import Path

from remoteprof.cli.output import Outputs
from remoteprof.cli.signals import handling
from remoteprof.errors import RemoteprofError, SamplerDied
from remoteprof.process import original_environment, own_start_ns
from remoteprof.session import Options, Session

_PR_SET_CHILD_SUBREAPER = 36

if sys.platform == "win32":
    from remoteprof.nt import launch as nt

    _LEFT_TO_CMD, _FORWARDED = (signal.SIGBREAK,), ()
else:
    _LEFT_TO_CMD, _FORWARDED = (signal.SIGQUIT,), (signal.SIGTERM, signal.SIGHUP)


class GivenUp(RemoteprofError):
    """Ctrl-C came twice: whoever presses it does not want to wait for us."""


class CannotRun(RemoteprofError):
    """CMD cannot be executed; the exit codes are those of a shell."""

    def __init__(self, program: bytes, reason: str, exit_code: int) -> None:
        hint = "check its name and PATH" if exit_code == 127 else "it must be an executable file"
        super().__init__(f"cannot run {os.fsdecode(program)}: {reason}", hint)
        self.exit_code = exit_code


def find_program(program: bytes, environment: list[bytes]) -> bytes:
    """The path of CMD, found as execvp(3) does, on Windows by PATH and PATHEXT. Raises CannotRun."""
    if sys.platform == "win32":
        found = nt.find_program(os.fsdecode(program))
        if found is None:
            raise CannotRun(program, "not found", 127)
        return os.fsencode(found)
    if b"/" in program:
        places = [program]
    else:
        path = next((entry[5:] for entry in environment if entry.startswith(b"PATH=")), b"/bin:/usr/bin")
        places = [(folder or b".") + b"/" + program for folder in path.split(b":")] if program else []
    denied = False
    for place in places:
        try:
            regular = stat.S_ISREG(Path(os.fsdecode(place)).stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError):
            denied = True
            continue
        if regular and os.access(place, os.X_OK):
            return place
        denied = True
    if denied:
        raise CannotRun(program, "not an executable file", 126)
    raise CannotRun(program, "not found", 127)


def exit_code(status: int) -> int:
    """The exit code that stands for a wait status: 128+N for signal N. On Windows both are one."""
    if sys.platform == "win32":
        return status
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _become_subreaper() -> None:
    """If the sampler dies, CMD becomes our child, and its status is not lost. On Windows it always is."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Launch:
    """One `run`."""

    def __init__(self, arguments: list[bytes], options: Options, outputs: Outputs, strict: bool) -> None:
        self._arguments = arguments
        self._options = options
        self._outputs = outputs
        self._strict = strict
        self._pid = 0
        self._failed = False
        self._early: list[int] = []
        self._interrupts = 0
        self._writing = False

    def run(self) -> int:
        """Gives the exit code. Raises CannotRun, and with --strict what kept CMD from being started under us."""
        environment = [] if sys.platform == "win32" else original_environment()
        program = find_program(self._arguments[0], environment)
        # Ctrl-C and Ctrl-\ of a terminal, or Ctrl-Break of a console, reach CMD by themselves.
        with (
            handling(lambda _: None, *_LEFT_TO_CMD),
            handling(self._interrupt, signal.SIGINT),
            handling(self._forward, *_FORWARDED),
            self._outputs.signals(),
        ):
            try:
                session = Session(self._options, since_ns=own_start_ns(), terminal=True)
            except RemoteprofError as error:
                self._or_strict(error)
            else:
                with session:
                    try:
                        _become_subreaper()
                        self._pid = session.launch(self._arguments, environment)
                    except OSError as error:
                        raise self._cannot(error) from None
                    except RemoteprofError as error:
                        self._or_strict(error)
                    else:
                        return self._recorded(session)
            return self._unprofiled(program, environment)

    def _recorded(self, session: Session) -> int:
        self._forward_early()
        try:
            try:
                session.start()
                # The second Ctrl-C ends the recording, whatever CMD makes of it.
                self._outputs.record(session, Path(os.fsdecode(self._arguments[0])).name, lambda: self._interrupts >= 2)
            except OSError as error:
                raise self._cannot(error) from None
            if session.failure is not None:
                self._complain(session.failure)
            self._write(session)
        except CannotRun:
            raise
        except RemoteprofError as error:
            self._complain(error)
        try:
            status = session.wait()
        except SamplerDied:
            status = self._wait()
        return 1 if self._failed and self._strict else exit_code(status)

    def _write(self, session: Session) -> None:
        self._writing = True
        try:
            self._outputs.write(session)
        finally:
            self._writing = False

    def _interrupt(self, _: int) -> None:
        """Ctrl-C came; CMD has it too."""
        self._interrupts += 1
        if self._writing and self._interrupts >= 2:
            self._writing = False
            raise GivenUp("Ctrl-C came twice", "press it once, and the profile is written")

    def _wait(self) -> int:
        """The wait status of CMD, where it is our child."""
        if sys.platform == "win32":
            return 1  # not reached: a Session waits for CMD without its sampler
        try:
            return os.waitpid(self._pid, 0)[1]
        except ChildProcessError:
            return 1 << 8

    def _forward_early(self) -> None:
        for number in self._early:
            self._forward(number)

    def _forward(self, number: int) -> None:
        if not self._pid:
            self._early.append(number)
            return
        with contextlib.suppress(OSError):
            os.kill(self._pid, number)

    def _or_strict(self, error: RemoteprofError) -> None:
        if self._strict:
            raise error
        self._complain(error)

    def _complain(self, error: RemoteprofError) -> None:
        from remoteprof.cli import warn

        if not self._failed:
            warn(f"warning: not profiled: {error.message}", error.hint)
        self._failed = True

    def _unprofiled(self, program: bytes, environment: list[bytes]) -> int:
        """CMD without a recording."""
        if sys.platform == "win32":
            try:
                return nt.Command([os.fsdecode(argument) for argument in self._arguments], suspended=False).wait()
            except OSError as error:
                raise self._cannot(error) from None
        try:
            self._pid = os.posix_spawn(
                program,
                self._arguments,
                dict(entry.split(b"=", 1) for entry in environment if b"=" in entry),
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which the interpreter ignores
            )
        except OSError as error:
            raise self._cannot(error) from None
        self._forward_early()
        return exit_code(self._wait())

    def _cannot(self, error: OSError) -> CannotRun:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return CannotRun(self._arguments[0], reason, 127 if error.errno == errno.ENOENT else 126)
