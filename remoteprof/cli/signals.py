"""Signals, for the time of one recording. The library installs none; only commands do."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

if sys.platform == "win32":
    HANG_UP = signal.SIGBREAK
else:
    HANG_UP = signal.SIGHUP


@contextlib.contextmanager
def handling(action: Callable[[int], None], *numbers: signal.Signals) -> Iterator[None]:
    """Calls `action(number)` for each of these signals meanwhile. One that was ignored (nohup, a background job of a
    script) stays ignored, here and in what is started from here."""

    def handler(number: int, _: FrameType | None) -> None:
        action(number)

    before = {}
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextlib.contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Ctrl-C, SIGTERM and SIGHUP (on Windows Ctrl-Break) as a question that becomes True."""
    seen: list[int] = []
    with handling(seen.append, signal.SIGINT, signal.SIGTERM, HANG_UP):
        yield lambda: bool(seen)
