"""Which processes of this machine a user means, by what is known of them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remoteprof.errors import UsageError

if TYPE_CHECKING:
    import psutil

_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of the kernel's include/linux/sched.h: a bit of the flags in /proc/PID/stat."""


@dataclass(frozen=True, slots=True)
class Selector:
    """What a process must have, all of it together. An empty field asks for nothing.

    `name` and `cmdline` are regular expressions that are found somewhere in the process's name, or in its arguments
    joined by spaces; `cgroup` is a part of the path of one of its control groups; `user` a name or a number.
    """

    name: str = ""
    cmdline: str = ""
    cgroup: str = ""
    user: str = ""

    def __post_init__(self) -> None:
        """Raises UsageError for what is no regular expression, and for users that there are not."""
        for pattern in (self.name, self.cmdline):
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(f"not a regular expression: {pattern!r}", str(error)) from None
        if self.user:
            _user_id(self.user)

    def __bool__(self) -> bool:
        """Whether anything is asked for."""
        return any((self.name, self.cmdline, self.cgroup, self.user))

    def find(self) -> list[psutil.Process]:
        """The processes that have it, in the order of their pids. Never this one, nor those that it was started by,
        whose command lines hold the very text that is looked for; nor what cannot be recorded: zombies and the
        kernel's own threads."""
        import psutil

        ours = psutil.Process()
        left_out = {ours.pid, *(parent.pid for parent in ours.parents())}
        tests = list(self._tests())
        found = []
        for process in psutil.process_iter():
            if process.pid in left_out:
                continue
            with contextlib.suppress(psutil.Error, OSError):
                if all(test(process) for test in tests) and _can_be_recorded(process):
                    found.append(process)
        return found

    def _tests(self) -> Iterator[Callable[[psutil.Process], bool]]:
        """Those that are quick first."""
        if self.user:
            user = _user_id(self.user)
            yield lambda process: process.uids().real == user
        if self.name:
            name = re.compile(self.name)
            yield lambda process: name.search(process.name()) is not None
        if self.cgroup:
            yield lambda process: any(self.cgroup in path for path in _control_groups(process.pid))
        if self.cmdline:
            cmdline = re.compile(self.cmdline)
            yield lambda process: cmdline.search(" ".join(process.cmdline())) is not None


def _user_id(user: str) -> int:
    import pwd

    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        if user.isascii() and user.isdigit():
            return int(user)  # processes of containers have users that this system has no names for
        raise UsageError(f"no user {user!r}", "give a name of this system, or a number") from None


def _control_groups(pid: int) -> list[str]:
    """The paths of its control groups, one of each hierarchy: cgroups(7)."""
    lines = os.fsdecode(Path(f"/proc/{pid}/cgroup").read_bytes()).splitlines()
    return [line.split(":", 2)[2] for line in lines if line.count(":") >= 2]


def _can_be_recorded(process: psutil.Process) -> bool:
    import psutil

    if process.status() == psutil.STATUS_ZOMBIE:
        return False
    # The name in parentheses may hold anything; fields count from behind it.
    fields = os.fsdecode(Path(f"/proc/{process.pid}/stat").read_bytes()).rpartition(")")[2].split()
    return not int(fields[6]) & _KERNEL_THREAD
