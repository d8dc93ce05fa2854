"""How a Go program was built, as the Go toolchain wrote it into the program."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NamedTuple

from remoteprof.modules.elf import open_regular


class Program(NamedTuple):
    """A Go program. `settings` are the build's, such as {"CGO_ENABLED": "1", "-trimpath": "true"}."""

    version: str
    """Of Go, such as "go1.26.8"."""
    path: str
    """Of the main package, "" = unknown."""
    module: str
    """Path and version of the main module, "" = unknown."""
    settings: dict[str, str]

    @property
    def sentence(self) -> str:
        """For people."""
        facts = [
            self.version,
            f"package {self.path}" if self.path else "",
            f"module {self.module}" if self.module else "",
        ]
        return "; ".join(
            [fact for fact in facts if fact] + [f"{name}={value}" for name, value in self.settings.items()]
        )


def program_of(pid: int) -> Program | None:
    """The Go program that process `pid` runs; None where it is none, or cannot be read."""
    if sys.platform == "win32":
        return None  # Go programs are not read there yet
    with contextlib.suppress(OSError):
        descriptor = open_regular(f"/proc/{pid}/exe")
        if descriptor is not None:
            try:
                return program_in(descriptor)
            finally:
                os.close(descriptor)
    return None


def program_in(descriptor: int) -> Program | None:
    """The Go program in an open file; None where it is none. Raises OSError."""
    from remoteprof._native import go_build

    found = go_build(descriptor)
    if found is None:
        return None
    version, text = found
    path = module = ""
    settings = {}
    for line in text.split("\n"):
        kind, _, value = line.partition("\t")
        if kind == "path":
            path = value
        elif kind == "mod":
            module = " ".join(value.split("\t")[:2]).strip()
        elif kind == "build":
            name, _, setting = value.partition("=")
            settings[name] = setting
    return Program(version, path, module, settings)
