"""The command line of remoteprof, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import pprof
from support.targets import PATIENCE

COMMAND = Path(sys.executable).with_name("remoteprof")
LONG = bool(os.environ.get("REMOTEPROF_LONG"))


@dataclass
class Result:
    status: int
    stdout: str
    stderr: str

    def failed_with(self, status: int, *words: str) -> None:
        """It ended with this exit code, said `error:` and `hint:`-like text with these words, and no traceback."""
        assert self.status == status, f"exit {self.status}, expected {status}\n{self.stderr}"
        assert "Traceback" not in self.stderr, self.stderr
        assert "rror:" in self.stderr, f"no error message\n{self.stderr}"
        assert self.stdout == "", self.stdout
        for word in words:
            assert word.lower() in self.stderr.lower(), f"{word!r} not in:\n{self.stderr}"


@dataclass
class Recording:
    result: Result
    path: Path
    profile: pprof.Profile
    stats: dict[str, Any]


def remoteprof(*arguments: object, patience: float = 0, **options: Any) -> Result:
    """Run remoteprof and wait for it."""
    done = subprocess.run(
        [str(COMMAND), *(str(argument) for argument in arguments)],
        stdin=options.pop("stdin", subprocess.DEVNULL),
        capture_output=True,
        timeout=patience or PATIENCE * 3,
        check=False,
        **options,
    )
    stdout = done.stdout.decode(errors="backslashreplace")
    return Result(done.returncode, stdout, done.stderr.decode(errors="backslashreplace"))


def begin(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Run remoteprof and do not wait."""
    options = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    } | options
    return subprocess.Popen([str(COMMAND), *(str(argument) for argument in arguments)], **options)


def ended(recorder: subprocess.Popen[str], path: Path, stats: Path) -> Recording:
    """What a remoteprof that `begin` started has recorded, once it has ended."""
    output, errors = recorder.communicate(timeout=PATIENCE)
    return read_recording(Result(recorder.returncode, output, errors), path, stats)


def read_recording(result: Result, path: Path, stats: Path) -> Recording:
    assert result.status == 0, f"exit {result.status}\n{result.stdout}\n{result.stderr}"
    assert path.exists(), f"no profile was written\n{result.stderr}"
    return Recording(result, path, pprof.load(path), json.loads(stats.read_text(encoding="utf-8")))


def attach(
    pid: int, directory: Path, duration: float | str, rate: int = 100, *options: object, **more: Any
) -> Recording:
    """Record a process for this long; everything about it."""
    path = directory / f"{pid}-{rate}.pb.gz"
    stats = directory / f"{pid}-{rate}.json"
    patience = PATIENCE * 2 + (duration if isinstance(duration, float | int) else 600)
    # How long a stop takes depends on who else wants the core; what is tested here must not.
    options = ("--max-pause", "1s", *options)
    result = remoteprof(
        "attach", pid, "-d", duration, "-r", rate, "-o", path, "--stats", stats, *options, patience=patience, **more
    )
    return read_recording(result, path, stats)
