"""Processes, as the supervisor sees them: names, times, memory, and the start of our own."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def clock_ns() -> int:
    """Nanoseconds of the clock that the native module goes by: CLOCK_MONOTONIC, on Windows the performance counter."""
    return time.perf_counter_ns() if sys.platform == "win32" else time.monotonic_ns()


def name_of(pid: int) -> str:
    """The short name of process `pid`; "" where it is gone."""
    if sys.platform == "win32":
        from remoteprof.nt import process

        return process.name_of(pid)
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return ""


def own_start_ns() -> int:
    """When this process started, by clock_ns(), to within a clock tick; now, where that is not known."""
    if sys.platform == "win32":
        from remoteprof.nt import process

        return process.own_start_ns()
    now = time.monotonic_ns()
    try:
        # The name in parentheses may hold anything; fields count from behind it.
        fields = Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()
        since_boot = int(fields[19]) * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return now
    asleep = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - now
    return min(since_boot - asleep, now)


def peak_memory(pid: int | str = "self") -> int:
    """The largest resident size of a process so far, bytes; 0 where it is not known.

    Not ru_maxrss: that one keeps, across exec, the size of the process that forked."""
    if sys.platform == "win32":
        from remoteprof.nt import process

        return process.peak_memory(os.getpid() if pid == "self" else int(pid))
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def cpu_time_ns(pid: int) -> int:
    """CPU time that a process has used, its children left out; 0 where it is not known."""
    if sys.platform == "win32":
        from remoteprof.nt import process

        return process.cpu_time_ns(pid)
    try:
        # The kernel's name for the CPU clock of a process, as clock_getcpuclockid(3) makes it.
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return 0


def host() -> str:
    """The system that this runs on."""
    if sys.platform == "win32":
        from remoteprof.nt import process

        return process.host()
    system = os.uname()
    return f"{system.sysname} {system.release} {system.machine}"


def original_environment() -> list[bytes]:
    """The environment this process was started with, byte by byte: the interpreter may have changed its own copy."""
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return [name + b"=" + value for name, value in os.environb.items()]
    return [entry for entry in entries if entry]
