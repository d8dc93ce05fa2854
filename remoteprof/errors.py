"""What can go wrong, as exceptions.

RemoteprofError                exit 1   anything else, an output that cannot be written included
├── UsageError                 exit 2   wrong arguments
├── ProcessNotFound            exit 3   no such process
├── PermissionDenied           exit 4   the system does not let us
│   └── AlreadyTraced          exit 4   a debugger or another tracer holds the process
├── NothingToProfile           exit 5   a zombie, a kernel thread, a 32-bit process, an unknown runtime
├── CheckFailed                exit 6   the CI gate
├── OutputError                exit 1   the profile cannot be written
└── SamplerDied                exit 1   the sampler process ended unexpectedly
"""

from __future__ import annotations


class RemoteprofError(Exception):
    """Any error of remoteprof. `message` says what happened, `hint` what to do about it ("" = nothing to add)."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(RemoteprofError):
    """Wrong arguments."""

    exit_code = 2


class ProcessNotFound(RemoteprofError):
    """There is no process of this id (any more)."""

    exit_code = 3


class PermissionDenied(RemoteprofError):
    """The operating system refuses access to the process."""

    exit_code = 4


class AlreadyTraced(PermissionDenied):
    """Another tracer holds the process; a process has one tracer at a time."""


class NothingToProfile(RemoteprofError):
    """The process is there but has nothing that can be profiled."""

    exit_code = 5


class CheckFailed(RemoteprofError):
    """A profile does not meet what `remoteprof check` was asked to hold."""

    exit_code = 6


class OutputError(RemoteprofError):
    """A file or stream could not be written."""


class SamplerDied(RemoteprofError):
    """The sampler process ended without finishing. The target is unharmed."""
