"""Keys of a terminal, one at a time and without echo."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from types import TracebackType
from typing import Any

if sys.platform == "win32":
    import msvcrt
else:
    import termios
    import tty

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page up", "page down", "home", "end"
ENTER, ESCAPE, BACKSPACE, HANGUP = "enter", "escape", "backspace", "hangup"
_SEQUENCES = {
    "\x1b[A": UP,
    "\x1b[B": DOWN,
    "\x1bOA": UP,
    "\x1bOB": DOWN,
    "\x1b[5~": PAGE_UP,
    "\x1b[6~": PAGE_DOWN,
    "\x1b[H": HOME,
    "\x1b[F": END,
    "\x1b[1~": HOME,
    "\x1b[4~": END,
    "\x1bOH": HOME,
    "\x1bOF": END,
}
"""What terminals send: those of xterm (ctlseqs), in both modes of its cursor keys."""
_SINGLE = {"\r": ENTER, "\n": ENTER, "\x1b": ESCAPE, "\x7f": BACKSPACE, "\x08": BACKSPACE}


if sys.platform == "win32":
    _LETTERS = {"H": UP, "P": DOWN, "I": PAGE_UP, "Q": PAGE_DOWN, "G": HOME, "O": END}
    """What msvcrt gives after a prefix, for keys that are no characters."""
    _PREFIXES = ("\x00", "\xe0")
    _PAUSE = 0.02
    """Seconds between two looks whether a key is pressed."""

    class Keys:
        """The keys that are pressed in the console; a context manager."""

        def __enter__(self) -> Keys:
            return self

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            pass  # the console is as it was: msvcrt leaves it so after each key

        def read(self, timeout: float) -> list[str]:
            """The keys of the next `timeout` seconds, as soon as there are any. A letter is itself; what has no name
            here is left out."""
            end = time.monotonic() + timeout
            while not msvcrt.kbhit():
                if time.monotonic() >= end:
                    return []
                time.sleep(_PAUSE)
            found: list[str] = []
            while msvcrt.kbhit():
                key = msvcrt.getwch()
                if key in _PREFIXES and msvcrt.kbhit():
                    found.extend(name for name in [_LETTERS.get(msvcrt.getwch())] if name)
                elif key == "\x03":
                    signal.raise_signal(signal.SIGINT)
                else:
                    found.extend(split(key))
            return found

else:

    class Keys:
        """The keys that are pressed on standard input, a terminal; a context manager, after which it is as it was."""

        def __init__(self) -> None:
            self._descriptor = sys.stdin.fileno()
            self._before: list[Any] = []

        def __enter__(self) -> Keys:
            self._before = termios.tcgetattr(self._descriptor)
            # Signals stay: Ctrl-C is one.
            tty.setcbreak(self._descriptor, termios.TCSADRAIN)
            return self

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            with contextlib.suppress(termios.error):  # the terminal may have gone
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

        def read(self, timeout: float) -> list[str]:
            """The keys of the next `timeout` seconds, as soon as there are any; HANGUP where the terminal has gone. A
            letter is itself; what has no name here is left out."""
            ready, _, _ = select.select([self._descriptor], [], [], timeout)
            if not ready:
                return []
            try:
                read = os.read(self._descriptor, 1024)
            except OSError:
                read = b""
            return split(read.decode(errors="ignore")) if read else [HANGUP]


def split(text: str) -> list[str]:
    """What a terminal sent, as keys."""
    found = []
    while text:
        sequence = next((one for one in _SEQUENCES if text.startswith(one)), "")
        if sequence:
            found.append(_SEQUENCES[sequence])
            text = text[len(sequence) :]
            continue
        if text[0] == "\x1b" and text[1:2] in ("[", "O"):
            # One that is not known: up to its final letter (ECMA-48, 5.4).
            end = 2
            while end < len(text) and not "@" <= text[end] <= "~":
                end += 1
            text = text[end + 1 :]
            continue
        if text[0] in _SINGLE:
            found.append(_SINGLE[text[0]])
        elif text[0].isprintable():
            found.append(text[0])
        text = text[1:]
    return found
