"""The machine, and what we may do on it."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path

from remoteprof import __version__
from remoteprof._native import ADD_CAPABILITY
from remoteprof.doctor import Finding, limit, ok
from remoteprof.doctor.look import trial

CAP_SYS_PTRACE = 19
INITIAL_PID_NAMESPACE, INITIAL_USER_NAMESPACE = 0xEFFFFFFC, 0xEFFFFFFD
"""Inodes of the namespaces that a system starts with (include/linux/proc_ns.h)."""
DESCRIPTORS = 4096
"""Descriptors with which about a thousand threads keep theirs open."""
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


def machine() -> list[Finding]:
    """Every finding about the machine and our rights."""
    return [
        ok("version", f"remoteprof {__version__}, Python {platform.python_version()}"),
        _kernel(),
        _figures(),
        _ptrace_scope(),
        _capabilities(),
        _seccomp(),
        _namespaces(),
        _hidden_processes(),
        _descriptors(),
        _debuginfod(),
        trial(),
    ]


def status_of(pid: int | str = "self") -> dict[str, str]:
    """The fields of /proc/PID/status; none where it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def namespace(kind: str, pid: int | str = "self") -> int:
    """The inode of a namespace that a process is in; 0 = not to be told."""
    try:
        return Path(f"/proc/{pid}/ns/{kind}").stat().st_ino
    except OSError:
        return 0


def may_trace() -> bool:
    """Whether we have CAP_SYS_PTRACE."""
    return bool(int(status_of().get("CapEff", "0"), 16) >> CAP_SYS_PTRACE & 1)


def _kernel() -> Finding:
    system = platform.uname()
    fact = f"{system.system} {system.release} {system.machine}"
    if (system.system, system.machine) != ("Linux", "x86_64"):
        return limit("kernel", fact, "processes of Linux on x86-64 can be recorded")
    return ok("kernel", fact)


def _figures() -> Finding:
    try:
        there = Path("/proc/self/schedstat").read_text().split()[0].isdigit()
    except (OSError, IndexError):
        there = False
    if there:
        return ok("CPU time", "the scheduler's figures are to be had, to the nanosecond")
    return limit("CPU time", "no /proc/PID/schedstat", "use a kernel with CONFIG_SCHED_INFO")


def _ptrace_scope() -> Finding:
    try:
        scope = int(_YAMA.read_text())
    except (OSError, ValueError):
        return ok("ptrace scope", "not restricted (no Yama)")
    fact = f"kernel.yama.ptrace_scope is {scope}"
    if scope == 0 or (scope < 3 and may_trace()):
        return ok("ptrace scope", fact)
    only = "only what is started by `remoteprof run`"
    if scope == 1:
        return limit("ptrace scope", f"{fact}: {only}", "sudo sysctl -w kernel.yama.ptrace_scope=0, or run with sudo")
    if scope == 2:
        return limit("ptrace scope", f"{fact}: nothing without CAP_SYS_PTRACE", "run with sudo")
    return limit("ptrace scope", f"{fact}: nothing at all", "boot with another setting: it cannot be lowered")


def _capabilities() -> Finding:
    user = os.geteuid()
    if may_trace():
        return ok("capabilities", f"CAP_SYS_PTRACE, as user id {user}: processes of all users")
    mend = "run with sudo for those of others"
    if namespace("pid") != INITIAL_PID_NAMESPACE:
        mend = ADD_CAPABILITY
    return limit("capabilities", f"no CAP_SYS_PTRACE: only processes of user id {user}", mend)


def _seccomp() -> Finding:
    mode = status_of().get("Seccomp", "")
    if mode in ("0", ""):
        return ok("seccomp", "no filter")
    # Whether the filter is in the way is shown by the trial.
    return ok("seccomp", "a filter is active, as in containers")


def _namespaces() -> Finding:
    own = namespace("pid")
    if own == INITIAL_PID_NAMESPACE:
        return ok("namespaces", "the system's own: all processes are in sight")
    user = "" if namespace("user") == INITIAL_USER_NAMESPACE else ", and users of its own"
    return limit(
        "namespaces",
        f"a container's{user}: only its processes are in sight",
        "from beside it: docker run --pid=container:NAME, or in Kubernetes shareProcessNamespace: true",
    )


def _hidden_processes() -> Finding:
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        mounts = []
    for line in mounts:
        fields, _, options = line.partition(" - ")
        if fields.split()[4:5] == ["/proc"] and any(
            f"hidepid={mode}" in options for mode in ("1", "2", "4", "noaccess", "invisible", "ptraceable")
        ):
            return limit("/proc", "other users' processes are hidden (hidepid)", "run with sudo")
    return ok("/proc", "shows all processes")


def _descriptors() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= DESCRIPTORS:
        return ok("descriptors", "no narrow limit" if hard == resource.RLIM_INFINITY else f"up to {hard}")
    mend = "raise the limit (ulimit -Hn, LimitNOFILE=): files of many threads are opened anew at each tick"
    return limit("descriptors", f"up to {hard}", mend)


def _debuginfod() -> Finding:
    if os.environ.get("DEBUGINFOD_URLS", "").strip():
        return ok("debuginfod", "DEBUGINFOD_URLS is set: missing debug information is fetched")
    return ok("debuginfod", "off (DEBUGINFOD_URLS is not set)")
