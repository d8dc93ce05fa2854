"""What doctor finds on Windows: the system and our rights, and one process."""

from __future__ import annotations

import os
import platform
import sys

from remoteprof import __version__
from remoteprof.doctor import Finding, limit, ok
from remoteprof.doctor.look import look, named, seen, trial
from remoteprof.errors import ProcessNotFound, RemoteprofError
from remoteprof.modules import pe
from remoteprof.process import host, name_of

INTEGRITY = {
    0x0000: "untrusted",
    0x1000: "low",
    0x2000: "medium",
    0x2100: "medium plus",
    0x3000: "high",
    0x4000: "system",
    0x5000: "protected",
}
"""Integrity levels (winnt.h, SECURITY_MANDATORY_…_RID)."""

if sys.platform == "win32":
    from remoteprof import _native

    def machine() -> list[Finding]:
        """Every finding about the system and our rights."""
        return [
            ok("version", f"remoteprof {__version__}, Python {platform.python_version()}"),
            _system(),
            _states(),
            _privilege(),
            _integrity(),
            _suspended(),
            trial(),
        ]

    def target(pid: int) -> tuple[list[Finding], RemoteprofError | None]:
        """Every finding about process `pid`, and why it cannot be recorded; None = it can. A thread of it that a
        sampler left suspended is let go. Raises ProcessNotFound."""
        found = [ok("process", f"{pid} ({name_of(pid) or 'its name is not told'})")]
        found += [*_protection(pid), *_higher(pid), *_resumed(pid)]
        try:
            process = _native.Target(pid)
            modules = _modules(process)
            found += seen(look(pid))
        except ProcessNotFound:
            raise
        except RemoteprofError as error:
            return [*found, limit("access", error.message, error.hint)], error
        return [*found, *modules], None

    def _system() -> Finding:
        wine = _native.wine_version()
        if wine:
            return limit("system", f"{host()}, by wine {wine}: not Windows itself")
        return ok("system", host())

    def _states() -> Finding:
        if _native.tells_thread_states():
            return ok("threads", "states and context switches are told: sleeping threads are not suspended")
        return limit("threads", "states are not told: each thread is suspended at each tick, CPU time counts in steps")

    def _privilege() -> Finding:
        if _native.enable_debug_privilege():
            return ok("privileges", "SeDebugPrivilege: processes of all users, but protected ones")
        return limit("privileges", "no SeDebugPrivilege: only processes of this user", "run as administrator")

    def _integrity() -> Finding:
        level = _native.integrity_level(os.getpid())
        if level is None:
            return ok("integrity", "levels are not told")
        return ok("integrity", f"{_level(level)}: processes up to this level")

    def _level(level: int) -> str:
        return INTEGRITY.get(level, f"{level:#x}")

    def _suspended() -> Finding:
        left = _native.left_suspended()
        if not left:
            return ok("left behind", "no thread is left suspended by remoteprof")
        threads = ", ".join(f"{tid} of process {pid}" for _, _, pid, tid, _ in left)
        mends = "; ".join(f"remoteprof doctor {pid}" for pid in sorted({pid for _, _, pid, _, _ in left}))
        return limit("left behind", f"all of remoteprof was ended while it held a thread: {threads}", mends)

    def _protection(pid: int) -> list[Finding]:
        level = _native.protection_level(pid)
        if level is None:
            return []
        return [limit("protection", f"Windows protects it from everybody (level {level})", "choose another process")]

    def _higher(pid: int) -> list[Finding]:
        own, its = _native.integrity_level(os.getpid()), _native.integrity_level(pid)
        if own is None or its is None:
            return []
        if its > own and not _native.enable_debug_privilege():
            fact = f"{_level(its)}, above our own, {_level(own)}"
            return [limit("integrity", fact, "run as administrator")]
        return [ok("integrity", _level(its))]

    def _resumed(pid: int) -> list[Finding]:
        found = []
        for record, sampler, its, tid, count in _native.left_suspended():
            if its != pid:
                continue
            fact = f"thread {tid} was left suspended by sampler {sampler}, which is gone"
            if _native.resume_left(record):
                found.append(ok("left behind", f"{fact}: it runs again"))
            else:
                fact = f"{fact}, and is suspended {count} times: somebody else did so too, so it is left as it is"
                found.append(limit("left behind", fact, "let it go on there, then ask again"))
        return found

    def _modules(process: _native.Target) -> list[Finding]:
        reader = pe.PeReader(process)
        reader.look()
        modules = reader.modules()
        if reader.trouble:
            return [limit("modules", reader.trouble, "try again")]
        found = [
            ok("program", f"{modules[0].path}, build id {modules[0].build_id}"),
            ok("modules", f"{len(modules)} are listed"),
        ]
        other = [module for module in modules if pe.id_of_file(module.path, reader.head(module)) is None]
        if other:
            fact = f"{named(other)}: the file is not there, or is not the one that is mapped"
            found.append(limit("files", fact, "restart the process"))
        return found
