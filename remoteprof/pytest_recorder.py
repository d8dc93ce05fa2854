"""Records a process for the pytest plugin, from outside of it: `python -m remoteprof.pytest_recorder PID`.

A line of JSON on stdin (`path`, `rate`, `name`) begins a recording, SIGUSR1 ends it and writes the profile; each is
answered by a line on stdout, `{}` or `{"error": text}`. Ends with its input.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Generator
from typing import Any

from remoteprof.errors import RemoteprofError
from remoteprof.session import Options, Session


class _Ended:
    """Whether SIGUSR1 came."""

    def __init__(self) -> None:
        self.now = False
        signal.signal(signal.SIGUSR1, self._come)

    def _come(self, *_: object) -> None:
        self.now = True


@contextlib.contextmanager
def _answered() -> Generator[None, None, None]:
    """Answers with the error, if one comes."""
    try:
        yield
    except (RemoteprofError, OSError) as error:
        hint = getattr(error, "hint", "")
        answer({"error": f"{error} ({hint})" if hint else str(error)})


def answer(what: dict[str, Any]) -> None:
    """Writes an answer."""
    print(json.dumps(what), flush=True)


def record(pid: int, wanted: dict[str, Any], ended: _Ended) -> None:
    """One recording."""
    ended.now = False
    with _answered(), Session(Options(rate=wanted["rate"])) as session:
        session.attach(pid)
        session.start()
        answer({})
        # From here on the next answer is that of the end.
        recording = session.run(lambda: ended.now)
        profile = recording.profile(f"pytest {wanted['name']}")
        profile.save(wanted["path"])
        answer({})


def main() -> None:
    """Until stdin ends."""
    ended = _Ended()
    for line in sys.stdin:
        record(int(sys.argv[1]), json.loads(line), ended)


if __name__ == "__main__":
    main()
