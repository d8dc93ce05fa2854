"""Processes of Windows, as the supervisor sees them: the functions of remoteprof.process."""

from __future__ import annotations

import os
import sys
import time

from remoteprof.errors import ProcessNotFound, RemoteprofError

if sys.platform == "win32":
    from remoteprof import _native

    class Running:
        """One process, told apart from a later one of its pid."""

        def __init__(self, pid: int) -> None:
            """Raises ProcessNotFound, PermissionDenied, NothingToProfile."""
            self._target = _native.Target(pid)

        def is_running(self) -> bool:
            """Whether it goes on."""
            try:
                return _native.Target(self._target.pid).start_time == self._target.start_time
            except ProcessNotFound:
                return False
            except RemoteprofError:
                return True  # and refuses us

    def name_of(pid: int) -> str:
        """The name of the file that process `pid` runs, without its suffix; "" where it is gone."""
        return _native.process_name(pid).removesuffix(".exe")

    def own_start_ns() -> int:
        """When this process was created, on time.perf_counter_ns()."""
        now = time.perf_counter_ns()
        created = _native.process_start_ns(os.getpid())
        return now if created is None else min(now, now - (time.time_ns() - created))

    def peak_memory(pid: int) -> int:
        """The largest resident size of a process so far, bytes; 0 where it is not known."""
        return _native.process_peak_bytes(pid) or 0

    def cpu_time_ns(pid: int) -> int:
        """CPU time that a process has used; 0 where it is not known."""
        return _native.process_cpu_ns(pid) or 0

    def host() -> str:
        """The system that this runs on."""
        version = sys.getwindowsversion()
        return f"Windows {version.major}.{version.minor}.{version.build} AMD64"
