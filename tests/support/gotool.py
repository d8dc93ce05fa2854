"""`go tool pprof`, the reader that profiles are made for."""

from __future__ import annotations

import os
import shutil
import subprocess


def go() -> str:
    """The path of go."""
    found = shutil.which("go")
    assert found, "go is not here: its `tool pprof` must open the profiles (scripts/test installs it)"
    return found


def go_pprof(*arguments: object) -> str:
    """What `go tool pprof ARGUMENTS` prints."""
    environment = {**os.environ, "PPROF_TMPDIR": "/tmp", "GOFLAGS": ""}
    command = [go(), "tool", "pprof", *(str(argument) for argument in arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    for line in done.stderr.splitlines():
        assert not any(word in line.lower() for word in ("error", "warning", "malformed", "failed")), done.stderr
    return done.stdout
