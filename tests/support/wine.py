"""Windows on Linux: CPythons for Windows under wine, as programs to record and to run remoteprof on."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import subprocess
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.cli import Recording, Result, read_recording
from support.targets import CACHE, PATIENCE, ROOT, Running, started

WINDOWS = CACHE / "windows"
VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
LATEST = VERSIONS[-1]
_TOO_OLD = ("3.9",)
"""remoteprof does not run on these: another does it for them."""
_SITE = ROOT / "tests" / "windows" / "site"


@functools.cache
def pythons() -> dict[str, Path]:
    listing = WINDOWS / "list"
    assert listing.exists(), "no wine, or no CPython for Windows: run scripts/setup-wine"
    pairs = (line.split(" ", 1) for line in listing.read_text(encoding="utf-8").splitlines())
    return {version: Path(path) for version, path in pairs}


def path_of(path: Path) -> str:
    """As programs under wine see it: Z: is the root."""
    return "Z:" + str(path).replace("/", "\\")


def environment(*folders: Path) -> dict[str, str]:
    """What wine, and Python under it, need. `folders`: where Python looks for modules."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        "WINEPREFIX": str(WINDOWS / "prefix"),
        "WINEDEBUG": "-all,err+all",
        "WINEDLLOVERRIDES": "mscoree,mshtml=",
        "PYTHONPATH": ";".join(path_of(folder) for folder in folders),
        "PYTHONIOENCODING": "utf-8",
    }


def command(version: str, *arguments: object) -> list[str]:
    """The command line of that CPython for Windows."""
    found = pythons().get(version)
    assert found and found.exists(), f"CPython {version} for Windows is not here: run scripts/setup-wine"
    return ["wine", str(found), *(str(argument) for argument in arguments)]


def serve() -> None:
    """Starts a wineserver that stays for a minute, and wine's services: they keep the pipes of who starts them."""
    nowhere = subprocess.DEVNULL
    for words in (["wineserver", "-p60"], ["wine", "cmd", "/c", "exit"]):
        subprocess.run(words, env=environment(), check=False, stdin=nowhere, stdout=nowhere, stderr=nowhere)


class Program:
    """A started program, spoken with by lines: several may come at once."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._read = b""

    def line(self) -> str:
        """The next line of its output."""
        assert self.process.stdout is not None
        end = time.monotonic() + PATIENCE
        while b"\n" not in self._read:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"no line came from {self.process.args!r}"
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            assert more, f"{self.process.args!r} ended early, with status {self.process.poll()}"
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line.decode(errors="backslashreplace").rstrip("\r")

    def send(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()


@contextlib.contextmanager
def going(command: list[str], env: dict[str, str], folder: Path | None = None) -> Iterator[Program]:
    """Runs a program, in a folder; kills it in the end."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=folder
    ) as process:
        try:
            yield Program(process)
        finally:
            process.kill()


@dataclass
class Target:
    running: Running
    pid: int
    """As Windows has it."""


@contextlib.contextmanager
def target(version: str, script: Path, *arguments: object, ready: str = "ready") -> Iterator[Target]:
    """Runs a script until it has printed its pid and `ready`; ends it in the end."""
    arguments = (path_of(script), *arguments)
    with contextlib.ExitStack() as stack:

        def start() -> Running:
            # Errors go into a pipe too: wine 8 starts no Python that has a file for one of its streams.
            options = {"env": environment(_SITE), "stderr": subprocess.PIPE}
            return stack.enter_context(started(command(version, *arguments), ready="", **options))

        running = start()
        try:
            pid = int(running.line())
        except AssertionError as error:
            # Very seldom wine 8 ends a Python as soon as it starts it; nobody has looked at that one yet.
            if running.process.poll() is None:
                raise
            warnings.warn(str(error), stacklevel=1)
            running = start()
            pid = int(running.line())
        if ready:
            line = running.line().rstrip("\r")
            assert line == ready, line
        yield Target(running, pid)


@contextlib.contextmanager
def program(path: Path, *arguments: object) -> Iterator[Target]:
    """Runs a program of Windows that prints its pid when it is ready; ends it in the end."""
    command = ["wine", str(path), *(str(argument) for argument in arguments)]
    with started(command, ready="", env=environment(), stderr=subprocess.PIPE) as running:
        yield Target(running, int(running.line()))


def packages(version: str) -> Path:
    """Where remoteprof is installed for that CPython, from its wheel. Who runs it stands there: modules are looked for
    in the current folder first, and that must not be the one of the sources."""
    folder = WINDOWS / "packages" / version
    assert (folder / "remoteprof").exists(), f"no remoteprof for CPython {version} for Windows: run scripts/setup-wine"
    return folder


def begin(version: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Runs remoteprof on that CPython, or on a later one if it is too old, and does not wait. Output goes through
    pipes: wine 8 knows no other way."""
    version = LATEST if version in _TOO_OLD else version
    return subprocess.Popen(
        command(version, "-m", "remoteprof", *arguments),
        cwd=packages(version),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(packages(version)),
    )


def remoteprof(version: str, *arguments: object, patience: float = PATIENCE * 3) -> Result:
    """Runs remoteprof on that CPython, and waits for it."""
    with begin(version, *arguments) as process:
        try:
            streams = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    text = [stream.decode(errors="backslashreplace").replace("\r\n", "\n") for stream in streams]
    return Result(process.returncode, *text)


@functools.cache
def _temporary() -> Path:
    done = subprocess.run(
        ["wine", "cmd", "/c", "echo %TEMP%"],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    # Such as C:\users\root\Temp.
    return (WINDOWS / "prefix" / "drive_c").joinpath(*done.stdout.decode().strip().split("\\")[1:])


class Held:
    """What a sampler says that it holds suspended, in its record (native/src/target/windows/held.rs)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def records() -> list[Path]:
        """Those in the temporary folder of the user that wine runs programs as."""
        return sorted(_temporary().glob("remoteprof/*.held"))

    def thread(self) -> int:
        """The thread that is held now, by its id; 0 = none."""
        return int.from_bytes(self.path.read_bytes()[48:52], "little")


def samplers() -> list[int]:
    """The process ids, as Linux has them, of sampler processes under wine that this tree started."""
    ours = path_of(WINDOWS / "packages").replace("\\", "\\\\").encode()
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes()
            if b"sampler_main" in line and b"get_osfhandle" in line and ours in line:
                found.append(int(folder.name))
    return found


def attach(version: str, pid: int, directory: Path, duration: float, rate: int, *options: object) -> Recording:
    """Records a process for this long; everything about it."""
    path, stats = directory / f"{pid}-{rate}.pb.gz", directory / f"{pid}-{rate}.json"
    files = ("-o", path_of(path), "--stats", path_of(stats))
    result = remoteprof(version, "attach", pid, "-d", duration, "-r", rate, *files, "--max-pause", "1s", *options)
    return read_recording(result, path, stats)
