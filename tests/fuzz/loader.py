"""Fuzzes what reads others' profiles, guided by its coverage (libFuzzer by way of atheris):
`scripts/fuzz-loader [SECONDS]`."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["remoteprof"]):
    from support.hostile import loaded


def entry(content: bytes) -> None:
    """One input."""
    loaded(content)


atheris.Setup(sys.argv, entry)
atheris.Fuzz()
