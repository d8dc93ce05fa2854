"""The sampler process: starting it, talking to it, outliving it.

It is the same native module in a small interpreter of its own. No process that runs other Python code is ever a tracer,
and if it dies, the kernel lets go of the target, which runs on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from remoteprof.errors import PermissionDenied, RemoteprofError, SamplerDied
from remoteprof.sampler_process import SamplerProcess, death

PATIENCE = 2.0
"""Seconds that a sampler gets to end by itself once its socket is closed."""
_SAMPLER = """import sys
sys.path.append({folder!r})
import _native
try:
    _native.sampler_main({fd})
except ConnectionError:
    pass  # we were not waited for
"""
_PR_SET_PTRACER = 0x59616D61


class Sampler(SamplerProcess):
    """A sampler process, from construction to close(). Leaves no thread, signal handler or child behind."""

    def __init__(self, *, terminal: bool = False) -> None:
        """Starts it. `terminal`: it shares descriptors and terminal with this process, for a CMD that it will start.

        Raises RemoteprofError where it cannot be started.
        """
        from remoteprof import _native

        if not sys.executable:
            raise RemoteprofError("cannot start the sampler process: sys.executable is not set")
        folder = str(Path(_native.__file__).parent)
        ours, theirs = socket.socketpair()
        code = _SAMPLER.format(folder=folder, fd=theirs.fileno())
        try:
            theirs.set_inheritable(True)
            process = subprocess.Popen(
                # Isolated and without site: it imports nothing but the native module.
                [sys.executable, "-I", "-S", "-c", code],
                close_fds=not terminal,
                pass_fds=() if terminal else (theirs.fileno(),),
                # One that serves no terminal must not be ended by its Ctrl-C.
                start_new_session=not terminal,
            )
        except OSError as error:
            ours.close()
            raise RemoteprofError(f"cannot start the sampler process: {error.strerror}") from None
        finally:
            theirs.close()
        with ours:
            super().__init__(process, _native.Link(ours.fileno()))  # which keeps a descriptor of its own
        self._tracer_allowed = False

    def allow_tracing_us(self) -> None:
        """Lets the sampler trace this very process where Yama would not (scope 1)."""
        with contextlib.suppress(OSError, ValueError):
            if int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text()) == 1:
                ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PTRACER, ctypes.c_ulong(self.pid), 0, 0, 0)
                self._tracer_allowed = True

    def launch(self, arguments: list[bytes], environment: list[bytes], stops: bool) -> None:
        """Asks it to fork CMD and to hold it; `stops`: threads will be stopped. Raises SamplerDied."""
        self.ask(lambda link: link.launch(arguments, environment, stops))

    def _death(self) -> SamplerDied:
        status = self._process.returncode or 0
        if status == -signal.SIGSYS:
            from remoteprof._native import NO_FILTER

            died = SamplerDied("a seccomp filter ended the sampler process at a system call", NO_FILTER)
            died.exit_code = PermissionDenied.exit_code
            return died
        how = f"was ended by {_signal_name(-status)}" if status < 0 else f"ended with status {status}"
        return death(how)

    def close(self) -> None:
        """Ends the sampler process, by force if it does not end by itself, and reaps it. May be called twice."""
        if self._process.returncode is not None:
            return
        self.peak_memory()
        self._link = None  # closes the socket, at which the sampler ends
        if not self._ended(PATIENCE):
            self._process.kill()
            self._ended(None)
        self.cpu_ns()  # of the zombie: the times of a reaped child would include those of CMD, its own child
        try:
            # By its own pid only: the other children of this process are none of our business.
            _, status = os.waitpid(self.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            self._process.returncode = 0  # the host program ignores SIGCHLD or reaps every child
        if self._tracer_allowed:
            ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(0), 0, 0, 0)

    def _ended(self, timeout: float | None) -> bool:
        """Waits until the process has ended, without reaping it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.0002
        while True:
            try:
                flags = os.WEXITED | os.WNOWAIT | (0 if deadline is None else os.WNOHANG)
                if os.waitid(os.P_PID, self.pid, flags) is not None:
                    return True
            except ChildProcessError:
                return True
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 2, 0.02)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
