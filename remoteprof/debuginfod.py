"""A client of debuginfod servers (elfutils): debug files by build id over plain HTTP, with the cache that other clients
share. Asked for by DEBUGINFOD_URLS, off otherwise."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

TIMEOUT = 10.0
"""Seconds without an answer, or without a byte of it."""
MAX_SECONDS = 90.0
"""Seconds for one file."""
MAX_BYTES = 2 << 30
"""Bytes of one file."""
MISS_SECONDS = 600.0
"""How long a file that no server had is not asked for again."""

_ID = re.compile(r"[0-9a-f]{4,128}")


class Debuginfod:
    """Servers, and the folder where their files are kept: as `BUILDID/debuginfo`, empty for one that no server has."""

    def __init__(self, urls: list[str], cache: Path) -> None:
        self.urls = [url.rstrip("/") for url in urls if re.match(r"https?://", url)]
        self.cache = cache

    @classmethod
    def from_environment(cls) -> Debuginfod:
        """What DEBUGINFOD_URLS, DEBUGINFOD_CACHE_PATH and XDG_CACHE_HOME say."""
        path = os.environ.get("DEBUGINFOD_CACHE_PATH")
        if not path:
            home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
            path = str(Path(home) / "debuginfod_client")
        return cls(os.environ.get("DEBUGINFOD_URLS", "").split(), Path(path))

    def fetch(self, build_id: str) -> int | None:
        """The debug file, open; None where there is none. Never raises for what servers or the cache do."""
        if not self.urls or not _ID.fullmatch(build_id):
            return None
        path = self.path(build_id)
        try:
            status = path.stat()
            if status.st_size:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if time.time() - status.st_mtime < MISS_SECONDS:
                return None
        except OSError:
            pass
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return self._download(build_id, path)
        except OSError:
            return None

    def path(self, build_id: str) -> Path:
        """Where the debug file is kept."""
        return self.cache / build_id / "debuginfo"

    def cached(self, build_id: str) -> int | None:
        """The debug file, open, if it was fetched before. Asks no server."""
        if not _ID.fullmatch(build_id):
            return None
        try:
            path = self.path(build_id)
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path.stat().st_size else None
        except OSError:
            return None

    def _download(self, build_id: str, path: Path) -> int | None:
        missing = True
        for url in self.urls:
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".debuginfo-", delete=False) as part:
                try:
                    if _get(f"{url}/buildid/{build_id}/debuginfo", part):
                        part.flush()
                        Path(part.name).replace(path)
                        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    missing = False
                except urllib.error.HTTPError as error:
                    # A server that has it not says 404; any other answer may be different next time.
                    missing = missing and error.code == 404
                    error.close()
                except (OSError, ValueError, http.client.HTTPException):
                    missing = False
                finally:
                    with contextlib.suppress(OSError):
                        Path(part.name).unlink()
        if missing:
            path.write_bytes(b"")
            os.utime(path)
        return None


def _get(url: str, into: IO[bytes]) -> bool:
    """Writes what `url` answers; whether it was complete and not empty."""
    end = time.monotonic() + MAX_SECONDS
    request = urllib.request.Request(url, headers={"User-Agent": "remoteprof"})
    size = 0
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        expected = answer.headers.get("Content-Length")
        while block := answer.read(1 << 20):
            size += len(block)
            if size > MAX_BYTES or time.monotonic() > end:
                raise OSError("the debug file is over its bound")
            into.write(block)
    return size > 0 and (expected is None or int(expected) == size)
