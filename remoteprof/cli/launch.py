"""What `run` does: CMD started as if remoteprof were not there, and its status passed on whatever becomes of the
recording."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import stat
from pathlib import Path

from remoteprof.cli.output import Outputs
from remoteprof.cli.signals import handling
from remoteprof.errors import RemoteprofError, SamplerDied
from remoteprof.process import original_environment, own_start_ns
from remoteprof.session import Options, Session

_PR_SET_CHILD_SUBREAPER = 36


class CannotRun(RemoteprofError):
    """CMD cannot be executed; the exit codes are those of a shell."""

    def __init__(self, program: bytes, reason: str, exit_code: int) -> None:
        hint = "check its name and PATH" if exit_code == 127 else "it must be an executable file"
        super().__init__(f"cannot run {os.fsdecode(program)}: {reason}", hint)
        self.exit_code = exit_code


def find_program(program: bytes, environment: list[bytes]) -> bytes:
    """The path of CMD, found as execvp(3) does. Raises CannotRun."""
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

    def run(self) -> int:
        """Gives the exit code. Raises CannotRun, and with --strict what kept CMD from being started under us."""
        environment = original_environment()
        program = find_program(self._arguments[0], environment)
        # Ctrl-C and Ctrl-\ of a terminal reach CMD by themselves, being in its process group.
        with (
            handling(lambda _: None, signal.SIGINT, signal.SIGQUIT),
            handling(self._forward, signal.SIGTERM, signal.SIGHUP),
        ):
            try:
                session = Session(self._options, since_ns=own_start_ns(), terminal=True)
            except RemoteprofError as error:
                self._or_strict(error)
            else:
                with session:
                    try:
                        # If the sampler dies, CMD becomes our child, and its status is not lost.
                        with contextlib.suppress(OSError):
                            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
                        self._pid = session.launch(self._arguments, environment)
                    except RemoteprofError as error:
                        self._or_strict(error)
                    else:
                        return self._recorded(session)
        # Not under us, then: CMD takes our place, and its status is ours without more.
        return self._replace(program, environment)

    def _recorded(self, session: Session) -> int:
        for number in self._early:
            self._forward(number)
        try:
            session.start()
            recording = session.run()
            if session.failure is not None:
                self._complain(session.failure)
            if recording.batches:
                self._outputs.write(recording, session, Path(os.fsdecode(self._arguments[0])).name)
        except RemoteprofError as error:
            self._complain(error)
        except OSError as error:
            raise self._cannot(error) from None
        status = self._status(session)
        return 1 if self._failed and self._strict else status

    def _status(self, session: Session) -> int:
        """CMD's status as an exit code."""
        try:
            status = session.wait()
        except SamplerDied:
            try:
                _, status = os.waitpid(self._pid, 0)
            except ChildProcessError:
                return 1
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

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

    def _replace(self, program: bytes, environment: list[bytes]) -> int:
        if self._early:
            return 128 + self._early[0]
        # The interpreter ignores these; CMD must not.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execve(program, self._arguments, dict(entry.split(b"=", 1) for entry in environment if b"=" in entry))
        except OSError as error:
            raise self._cannot(error) from None

    def _cannot(self, error: OSError) -> CannotRun:
        return CannotRun(self._arguments[0], error.strerror or str(error), 127 if error.errno == errno.ENOENT else 126)
