"""Building native programs to record: each once, kept in .cache/targets while source and options are the same."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support import sources
from support.native import Legal
from support.targets import CACHE, TARGETS

SEED = 7
SOURCES: dict[str, Callable[[int], tuple[str, Legal]]] = {
    "c": sources.c,
    "cxx": sources.cxx,
    "rust": sources.rust,
}


@dataclass(frozen=True)
class Program:
    """A built program and what is legal in it."""

    path: Path
    legal: Legal


def run(*command: object, cwd: Path | None = None, **environment: str) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stderr[-4000:]}"


def rustc() -> str:
    """Where scripts/setup leaves it, if it is not in PATH."""
    for folder in (CACHE / "rust" / "cargo" / "bin", Path.home() / ".cargo" / "bin"):
        if (folder / "rustc").exists():
            return str(folder / "rustc")
    return "rustc"


@functools.cache
def generated(language: str) -> tuple[Path, Legal]:
    """The generated text of a language, in a file."""
    text, legal = SOURCES[language](SEED)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = CACHE / "targets" / f"legal-{key}.{language}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.rename(path)
    return path, legal


def build(language: str, compiler: str, *options: str) -> Program:
    """The generated program, by this compiler."""
    text, legal = generated(language)
    source = TARGETS / "native" / ("legal.rs" if language == "rust" else "legal.c")

    def make(out: Path) -> None:
        if language == "rust":
            run(compiler, "--edition=2021", "-o", out, *options, source, GENERATED=str(text))
        else:
            kind = ["-x", "c++", "-std=gnu++17"] if language == "cxx" else ["-x", "c"]
            given = [f'-DGENERATED="{text}"', "-w", "-pthread", *kind, source, "-x", "none"]
            run(compiler, *given, "-o", out, *options, "-ldl")

    return Program(kept(f"legal-{language}", [source, text], [compiler, *options], make), legal)


MINGW = "x86_64-w64-mingw32-gcc"


def build_windows(*options: str) -> Program:
    """The generated C program for Windows."""
    text, legal = generated("c")
    source = TARGETS / "native" / "legal_windows.c"

    def make(out: Path) -> None:
        run(MINGW, f'-DGENERATED="{text}"', "-w", source, "-o", out, *options)

    return Program(kept("legal-windows", [source, text], [MINGW, *options], make, ".exe"), legal)


def windows_library(name: str, *options: str) -> Path:
    """A DLL of tests/targets/native."""
    source = TARGETS / "native" / name
    return kept(
        source.stem, [source], [MINGW, *options], lambda out: run(MINGW, "-shared", *options, source, "-o", out), ".dll"
    )


def kept(name: str, inputs: list[Path], options: list[str], make: Callable[[Path], None], suffix: str = "") -> Path:
    """What `make` writes at the path that it is given, made once."""
    digest = hashlib.sha256(repr(options).encode())
    for path in inputs:
        digest.update(path.read_bytes())
    result = CACHE / "targets" / f"{name}-{digest.hexdigest()[:16]}{suffix}"
    if not result.exists():
        result.parent.mkdir(parents=True, exist_ok=True)
        fresh = result.with_name(f"{result.stem}.{os.getpid()}{suffix}")
        make(fresh)
        fresh.rename(result)
    return result
