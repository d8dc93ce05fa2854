"""A file → Profile; the format is seen from its content."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from remoteprof.errors import RemoteprofError
from remoteprof.formats.pprof_reader import MAX_FILE
from remoteprof.formats.pprof_reader import parse as parse_pprof
from remoteprof.formats.wire import GZIP, head, inflate, too_large
from remoteprof.profile import legacy
from remoteprof.profile.model import Profile


def load(path: str | Path, *, signed: bool = False, names: legacy.Names | None = None) -> Profile:
    """The profile in the file at `path`: see Profile.load. names: finds functions where a format has addresses only."""
    try:
        with Path(path).open("rb") as file:
            content = read(file)
    except RemoteprofError as error:
        raise RemoteprofError(f"{path}: {error.message}", error.hint) from None
    except (OSError, ValueError) as error:
        raise RemoteprofError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    return parse(content, str(path), signed=signed, names=names)


def read(file: IO[bytes]) -> bytes:
    """What a file or a pipe holds. Raises RemoteprofError for more than MAX_FILE."""
    parts: list[bytes] = []
    size = 0
    while part := file.read(1 << 20):
        parts.append(part)
        size += len(part)
        if size > MAX_FILE:
            too_large(MAX_FILE)
    return b"".join(parts)


def parse(content: bytes, name: str, *, signed: bool = False, names: legacy.Names | None = None) -> Profile:
    """The profile in `content`, which errors call `name`."""
    try:
        if not content:
            raise RemoteprofError("empty: not a pprof profile")
        if legacy.is_legacy(content):
            return legacy.parse(content, names=names)
        # Only the head decides; the whole of a pprof profile is unpacked where it is read.
        if content.startswith(GZIP) and legacy.is_legacy(head(content, 64)):
            return legacy.parse(inflate(content, MAX_FILE), names=names)
        profile = parse_pprof(content, signed=signed)
        if names is not None:
            legacy.name(profile, names)
        return profile
    except RemoteprofError as error:
        raise type(error)(f"{name}: {error.message}", error.hint) from None
