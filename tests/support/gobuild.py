"""Building Go programs, by the installed Go and by others that it fetches (GOTOOLCHAIN), each once."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.builds import kept, run
from support.cli import LONG
from support.gotool import go
from support.targets import CACHE, TARGETS

INSTALLED = "local"
_SHORT = ("1.18.10", "1.21.13", "1.23.12", INSTALLED)
_LONG = ("1.18", "1.20", "1.20.14", "1.21.0", "1.22.0", "1.22.12", "1.23.0", "1.24.0", "1.24.13", "1.25.0")
VERSIONS = (*_SHORT, *_LONG) if LONG else _SHORT
_GARBLE = "v0.17.0"
"""For Go 1.26. It changes the linker, which Go allows with the one that is installed only."""
STRIPPED = ("-ldflags=-s -w",)
PIE = ("-buildmode=pie",)
RACE = ("-race",)
"""The race detector, which is C."""


def build(name: str, version: str = INSTALLED, *flags: str, cgo: bool = False) -> Path:
    """tests/targets/NAME, a module, built by that version of Go."""
    folder = TARGETS / name
    settings = {
        "GOTOOLCHAIN": "local" if version == INSTALLED else f"go{version}",
        "GOFLAGS": "-buildvcs=false",
        "CGO_ENABLED": "1" if cgo else "0",
    }

    def make(out: Path) -> None:
        run(go(), "build", *flags, "-o", out, ".", cwd=folder, **settings)

    options = [toolchain() if version == INSTALLED else version, *flags, str(cgo)]
    return kept(f"go-{name}", sorted(folder.iterdir()), options, make)


def garbled(name: str) -> Path:
    """tests/targets/NAME, built by garble: other names, and a table of functions that only its runtime understands."""
    folder = TARGETS / name
    settings = {"GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false", "CGO_ENABLED": "0"}

    def install(out: Path) -> None:
        with tempfile.TemporaryDirectory(dir=out.parent) as bin:
            run(go(), "install", f"mvdan.cc/garble@{_GARBLE}", cwd=folder, GOBIN=bin, **settings)
            Path(bin, "garble").rename(out)

    options = [_GARBLE, toolchain()]
    garble = kept("garble", [], options, install)

    def make(out: Path) -> None:
        run(garble, "build", "-o", out, ".", cwd=folder, GARBLE_CACHE=str(CACHE / "garble"), **settings)

    return kept(f"go-garbled-{name}", sorted(folder.iterdir()), options, make)


@functools.cache
def toolchain() -> str:
    """The installed Go's own version, such as go1.26.8."""
    told = subprocess.run(
        [go(), "env", "GOVERSION"],
        env={**os.environ, "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout.strip()


def version_of(version: str) -> str:
    """What a program built by that version says of itself."""
    return toolchain() if version == INSTALLED else f"go{version}"


def lumps_instantiations(version: str) -> bool:
    """Whether its profiles have one function for all instantiations of a generic: before Go 1.21 without type
    arguments, in Go 1.21.0 with those of the first one met (runtime/pprof/proto.go, emitLocation; since mended)."""
    return version.startswith(("1.18", "1.19", "1.20")) or version == "1.21.0"


def legible(text: str) -> str:
    """Text of Go's debug=1 and debug=2 in one form: columns by single tabs, arguments as (...), without goexit (the
    last of each list of addresses, where our lists have none) and without what only the process itself knows."""
    lines = []
    for line in text.rstrip("\n").split("\n"):
        line = re.sub(r"\t+", "\t", line)
        if re.match(r"\d+ @", line):
            line = line.rpartition(" ")[0]
        elif not line.startswith(("\t", "#", "goroutine ", "created by ")):
            # One pair of parentheses may be part of the name: main.(*T).f({0x1, ...})
            line = re.sub(r"\([{}0-9a-fx?, ._]*\)$", "(...)", line)
        lines.append(line.replace(", locked to thread]", "]"))
    return "\n".join(lines)


def blocks(text: str) -> Iterator[str]:
    """The parts between empty lines."""
    return (part.rstrip("\n") for part in text.split("\n\n") if part.strip())
