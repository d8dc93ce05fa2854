"""A real terminal, of any size, with a program in it: tmux."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence

from support.targets import CACHE, PATIENCE, wait_until

SCREENS = CACHE / "screenshots"
"""Where the last screens of each test are kept."""
_counter = itertools.count()


class Terminal:
    """One terminal; each screen that was looked at is kept, as evidence."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._server = ["tmux", "-L", f"remoteprof-{os.getpid()}-{next(_counter)}", "-f", "/dev/null"]
        self._kept: list[str] = []

    def tmux(self, *arguments: object) -> str:
        command = [*self._server, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        return done.stdout

    def start(self, command: Sequence[object], width: int, height: int, environment: Sequence[str] = ()) -> None:
        """Run a command in it, from a shell that stays and prints `ended: STATUS` and its settings afterwards."""
        line = shlex.join(["env", *environment, *map(str, command)])
        settings = "stty -a | tr ' ;' '\\n\\n' | grep -xE -e '-?(echo|icanon|isig)' | xargs"
        script = f"{line}; echo ended: $?; {settings}; exec sh"
        self.tmux("new-session", "-d", "-x", width, "-y", height, script)

    def close(self) -> None:
        with contextlib.suppress(AssertionError):
            self.tmux("kill-server")

    def keys(self, *keys: str) -> None:
        """Press keys: letters, or tmux's names such as Enter and Escape."""
        self.tmux("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self.tmux("resize-window", "-x", width, "-y", height)

    def pid(self) -> int:
        """Of the shell."""
        return int(self.tmux("display-message", "-p", "#{pane_pid}"))

    def alternate(self) -> bool:
        """Whether a program has the screen for itself."""
        return self.tmux("display-message", "-p", "#{alternate_on}").strip() == "1"

    def cursor_shown(self) -> bool:
        return self.tmux("display-message", "-p", "#{cursor_flag}").strip() == "1"

    def screen(self, *, escapes: bool = False) -> list[str]:
        """What it shows, without spaces at the ends of lines; escapes: with colours and styles."""
        text = self.tmux("capture-pane", "-p", *(["-e"] if escapes else []))
        lines = [line.rstrip() for line in text.split("\n")][:-1]
        if not self._kept or self._kept[-1] != text:
            self._kept = [*self._kept[-9:], text]
            SCREENS.mkdir(parents=True, exist_ok=True)
            (SCREENS / f"{self.name}.txt").write_text(f"{'=' * 40}\n".join(self._kept))
        return lines

    def wait(self, true: Callable[[list[str]], object], what: str) -> list[str]:
        """The first screen of which this holds; fails, naming it and where the screens are, when none comes."""
        found: list[str] = []

        def seen() -> object:
            nonlocal found
            found = self.screen()
            return true(found)

        wait_until(seen, f"{what}; see {SCREENS / self.name}.txt")
        return found

    def shows(self, text: str) -> list[str]:
        """The first screen with this text."""
        return self.wait(lambda screen: any(text in line for line in screen), repr(text))


@contextlib.contextmanager
def terminal(name: str) -> Iterator[Terminal]:
    assert shutil.which("tmux"), "tmux is not here: run scripts/test, which installs it"
    one = Terminal(name)
    try:
        yield one
    finally:
        one.close()
