"""Files and stdout.

A file is written under a temporary name beside its place and renamed when it is complete, so that no half file is ever
seen, and mode 0600, since a profile tells much about a program.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from io import BufferedWriter
from pathlib import Path
from typing import Protocol

from remoteprof.errors import OutputError, UsageError

if sys.platform == "win32":
    _PRIVATE = os.O_BINARY | os.O_NOINHERIT
else:
    _PRIVATE = os.O_CLOEXEC
_HINTS = {
    errno.ENOSPC: "make room, or choose another place with -o PATH",
    errno.EDQUOT: "make room, or choose another place with -o PATH",
    errno.ENOENT: "make the directory first, or choose another place with -o PATH",
    errno.EPIPE: "whatever read this output has ended",
    errno.EBADF: "stdout is closed: write to a file with -o PATH",
}


def _error(path: str, error: OSError) -> OutputError:
    hint = _HINTS.get(error.errno or 0, "choose another place with -o PATH")
    return OutputError(f"cannot write {path}: {error.strerror or error}", hint)


class Stream(Protocol):
    """What a format writes to."""

    def write(self, content: bytes, /) -> int:
        """Takes all of `content`."""

    def flush(self) -> object:
        """Passes on what was taken."""


class FileSink:
    """A file. A symbolic link is followed; a device or a pipe is written as it is, since it cannot be replaced."""

    def __init__(self, path: str) -> None:
        self.path = path

    def check(self) -> None:
        """Raises OutputError where the file cannot be created. Leaves nothing behind."""
        try:
            if self._replaceable():
                with self._temporary():
                    pass
            elif not os.access(self.path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise _error(self.path, error) from None

    def write(self, fill: Callable[[Stream], None]) -> int:
        """Writes what `fill` gives, all of it or nothing; gives the number of bytes. Raises OutputError."""
        try:
            if not self._replaceable():
                with Path(self.path).open("wb") as stream:
                    counted = Counted(stream)
                    fill(counted)
                return counted.count
            with self._temporary() as (name, stream):
                fill(stream)
                stream.flush()
                size = stream.tell()
                stream.close()  # Windows renames no open file
                name.replace(Path(self.path).resolve())
            return size
        except OSError as error:
            raise _error(self.path, error) from None

    def _replaceable(self) -> bool:
        """Whether a regular file is, or can come, at the path."""
        try:
            mode = Path(self.path).stat().st_mode
        except FileNotFoundError:
            return True
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return stat.S_ISREG(mode)

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[tuple[Path, BufferedWriter]]:
        """A new file beside the path, gone afterwards unless it was renamed."""
        place = Path(self.path).resolve()
        name = place.with_name(f".{place.name[:200]}.{os.urandom(4).hex()}")
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PRIVATE, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield name, stream
        finally:
            with contextlib.suppress(OSError):
                name.unlink()


class StandardOutput:
    """stdout, for bytes: refused on a terminal."""

    path = "-"

    def check(self) -> None:
        """Raises UsageError on a terminal, OutputError where stdout is closed."""
        try:
            if sys.stdout is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if sys.stdout.isatty():
                raise UsageError(
                    "a profile is not written to a terminal", "redirect stdout, or name a file with -o PATH"
                )
        except (OSError, ValueError) as error:
            raise _error("stdout", error if isinstance(error, OSError) else OSError(errno.EBADF, str(error))) from None

    def write(self, fill: Callable[[Stream], None]) -> int:
        """Writes what `fill` gives; gives the number of bytes. Raises OutputError, UsageError."""
        self.check()
        with writing_stdout():
            counted = Counted(sys.stdout.buffer)
            fill(counted)
            sys.stdout.buffer.flush()
        return counted.count


@contextlib.contextmanager
def writing_stdout() -> Iterator[None]:
    """Around writes to stdout: an OSError becomes OutputError, and the interpreter's flush at exit stays silent."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        yield
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer would fail again at exit, with a message of the interpreter's own.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)
        raise _error("stdout", error) from None


class Counted:
    """A stream for writing that counts bytes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.count = 0

    def write(self, content: bytes, /) -> int:
        """Passes `content` on."""
        written = self._stream.write(content)
        self.count += written
        return written

    def flush(self) -> None:
        """Passes on."""
        self._stream.flush()
