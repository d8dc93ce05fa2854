"""Containers: programs in namespaces and a root of their own, and remoteprof in a sidecar beside them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from support import cli
from support.targets import CACHE, PATIENCE, TARGETS, Running, started, wait_until

CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
"""Those that Docker leaves to a container: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP,
NET_BIND_SERVICE, NET_RAW, SYS_CHROOT, MKNOD, AUDIT_WRITE, SETFCAP (include/uapi/linux/capability.h)."""
SYS_PTRACE = 19


def root(name: str) -> Path:
    """A root that scripts/setup-roots made: "debian" or "musl"."""
    found = CACHE / "roots" / name
    assert (found / "usr").exists(), f"no {found}: run scripts/setup-roots"
    return found.resolve()


def _contain(lower: Path, work: Path, capabilities: Sequence[int]) -> list[str]:
    work.mkdir(exist_ok=True)
    kept = ",".join(map(str, capabilities))
    return [sys.executable, str(TARGETS / "contain.py"), str(lower), str(work), kept]


@contextlib.contextmanager
def container(
    name: str, work: Path, *command: str | Path, users: bool = False, capabilities: Sequence[int] = CAPABILITIES
) -> Iterator[tuple[Running, int]]:
    """COMMAND as process 1 of a container over that root, once it is ready, and what its pid is here. `users`: in a
    user namespace too. What is in WORK/upper is seen in its root."""
    spaces = ["--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc"]
    spaces += ["--user", "--map-root-user"] if users else []
    contain = _contain(root(name), work, capabilities)
    with started(["unshare", *spaces, *contain, *(str(word) for word in command)]) as outer:
        yield outer, inner_pid(outer.pid)


def inner_pid(outer: int) -> int:
    """The child of `unshare`."""
    children = Path(f"/proc/{outer}/task/{outer}/children")
    wait_until(lambda: children.read_text().split(), f"a child of {outer}")
    return int(children.read_text().split()[0])


def sidecar(
    pid: int,
    work: Path,
    *arguments: object,
    users: bool = False,
    capabilities: Sequence[int] = (*CAPABILITIES, SYS_PTRACE),
) -> cli.Result:
    """remoteprof in a container of its own that shares the PID namespace of process `pid`: docker run
    --pid=container:NAME."""
    joined = ["nsenter", f"--target={pid}", "--pid", "--net", *(["--user"] if users else []), "unshare", "--mount"]
    command = [*joined, *_contain(Path("/"), work, capabilities), str(cli.COMMAND), *(str(word) for word in arguments)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=3 * PATIENCE
    )
    return cli.Result(done.returncode, done.stdout, done.stderr)
