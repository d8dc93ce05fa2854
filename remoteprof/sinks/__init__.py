"""Sinks: where bytes go. One module each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from remoteprof.sinks.file import FileSink, StandardOutput, Stream

__all__ = ["FileSink", "Sink", "StandardOutput", "Stream", "open_sink"]


class Sink(Protocol):
    """A place for one output."""

    def check(self) -> None:
        """Raises OutputError (or UsageError) if it is known beforehand that a write would fail. Leaves nothing."""

    def write(self, fill: Callable[[Stream], None]) -> int:
        """Writes what `fill` gives, all of it or nothing; gives the number of bytes. Raises OutputError."""


def open_sink(path: str) -> Sink:
    """The sink for `path`; "-" is stdout."""
    return StandardOutput() if path == "-" else FileSink(path)
