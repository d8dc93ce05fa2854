"""Small native programs whose names are known."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remoteprof import _native

SOURCE = Path(__file__).parents[1] / "targets" / "native" / "symbols_inline.c"
WAITS = "\n#include <unistd.h>\nstatic void __attribute__((constructor)) waits(void) { pause(); }\n"


def build(folder: Path, *flags: str, name: str = "program") -> Path:
    source = folder / "program.c"
    source.write_text(SOURCE.read_text() + WAITS)
    subprocess.run(["gcc", "-g", "-O2", "-o", name, "program.c", *flags], cwd=folder, check=True)
    return folder / name


@contextmanager
def running(*argv: str | Path) -> Iterator[_native.Target]:
    """The target, once it waits."""
    with subprocess.Popen([str(word) for word in argv], stdout=subprocess.DEVNULL) as process:
        try:
            for _ in range(500):
                syscall = Path(f"/proc/{process.pid}/syscall").read_text().split()
                if syscall[0] in {"34", "35", "230"}:
                    break
                time.sleep(0.01)
            yield _native.Target(process.pid)
        finally:
            process.kill()


def code_of(target: _native.Target, path: Path | str) -> _native.Mapping:
    return next(mapping for mapping in target.mappings() if mapping.path == str(path) and mapping.permissions[2] == "x")


def address_of(target: _native.Target, path: Path, name: str) -> int:
    """Where `name` of a running program is, by nm and the mapping of offset 0."""
    unstripped = path.with_name("full") if path.with_name("full").exists() else path
    table = subprocess.run(["nm", unstripped], capture_output=True, text=True, check=True).stdout
    value = next(int(row.split()[0], 16) for row in table.splitlines() if row.split()[-1] == name)
    base = next(m.start for m in target.mappings() if m.path == str(path) and m.offset == 0)
    return base + value
