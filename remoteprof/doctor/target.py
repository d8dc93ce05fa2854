"""One process: whether it can be recorded, and what will be seen of it."""

from __future__ import annotations

import os
from io import FileIO
from typing import TYPE_CHECKING

from remoteprof.doctor import Finding, limit, ok
from remoteprof.doctor.look import look, named, seen
from remoteprof.doctor.machine import namespace, status_of
from remoteprof.errors import ProcessNotFound, RemoteprofError
from remoteprof.process import name_of

if TYPE_CHECKING:
    from remoteprof.modules import Module
    from remoteprof.symbols import Sources

KINDS = ("mnt", "pid", "user", "net")


def target(pid: int) -> tuple[list[Finding], RemoteprofError | None]:
    """Every finding about process `pid`, and why it cannot be recorded; None = it can. Raises ProcessNotFound."""
    from remoteprof import _native

    status = status_of(pid)
    found = [ok("process", f"{pid} ({name_of(pid)}), user id {status.get('Uid', '?').split()[0]}")]
    found += [*_state(status), *_namespaces(pid)]
    try:
        _native.Target(pid)
        batch = look(pid)
    except ProcessNotFound:
        raise
    except RemoteprofError as error:
        return [*found, limit("access", error.message, error.hint)], error
    found += [*seen(batch), *_modules(pid), _jit(pid)]
    return found, None


def _state(status: dict[str, str]) -> list[Finding]:
    state = status.get("State", "")[:1]
    if state == "T":
        return [limit("state", "stopped: its stacks will not change", "let it go on with kill -CONT")]
    return []


def _namespaces(pid: int) -> list[Finding]:
    inodes = [(kind, namespace(kind), namespace(kind, pid)) for kind in KINDS]
    others = [kind for kind, own, its in inodes if own and its and own != its]
    if not others:
        return []
    return [ok("namespaces", f"{', '.join(others)} of its own: its files are opened through /proc/{pid}/root")]


def _modules(pid: int) -> list[Finding]:
    from remoteprof import _native
    from remoteprof.symbols import sources_of

    modules = [(module, sources) for module, sources in sources_of(pid) if module.path.startswith("/")]
    if not modules:
        return [limit("modules", "nothing is known to be mapped")]
    main, facts = modules[0]
    found = [_main(main, facts)]
    mapped = _native.Target(pid).mappings()
    removed = {mapping.start for mapping in mapped if mapping.path.endswith(" (deleted)")}
    if replaced := [module for module, _ in modules if module.start in removed]:
        found.append(
            limit("files", f"{named(replaced)} was removed or replaced since it was mapped", "restart the process")
        )
    nameless = [module for module, sources in modules if not (sources.debug_info or sources.symbol_tables)]
    if nameless:
        found.append(limit("names", f"none for {named(nameless)}", "install its debug symbols, or set DEBUGINFOD_URLS"))
    bare = [module for module, sources in modules if not sources.unwind_tables and not sources.refused]
    if bare:
        mend = "stacks through it are walked by frame pointers: build it with -fno-omit-frame-pointer"
        found.append(limit("unwind tables", f"none in {named(bare)}", mend))
    else:
        found.append(ok("unwind tables", f"in all {len(modules)} modules"))
    return found


def _main(module: Module, sources: Sources) -> Finding:
    fact = f"{module.path}, build id {module.build_id or 'none'}"
    if sources.debug_info:
        place = f" ({sources.debug_file})" if sources.debug_file else ""
        return ok("program", f"{fact}, debug information{place}")
    mend = "for files, lines and inlined calls of native code install its debug symbols, or set DEBUGINFOD_URLS"
    return limit("program", f"{fact}, no debug information", mend)


def _jit(pid: int) -> Finding:
    from remoteprof import _native
    from remoteprof.symbols import is_jit_dump

    mappings = _native.Target(pid).mappings()
    dump = next((mapping.path for mapping in mappings if is_jit_dump(mapping.path)), "")
    if dump:
        return ok("JIT code", f"a jitdump, {dump}")
    try:
        with FileIO(_native.perf_map(pid)) as perf_map:
            size = os.fstat(perf_map.fileno()).st_size
    except OSError as error:
        anonymous = [
            mapping for mapping in mappings if "x" in mapping.permissions and not mapping.path and mapping.inode == 0
        ]
        if not anonymous:
            return ok("JIT code", "none")
        mend = "let it write a perf map: node --perf-basic-prof, java -XX:+DumpPerfMapAtExit, PYTHONPERFSUPPORT=1"
        return limit("JIT code", f"{len(anonymous)} mappings without names ({error.strerror or error})", mend)
    return ok("JIT code", f"a perf map of {size} bytes")
