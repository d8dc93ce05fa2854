"""Build ids of ELF files and images (of Go programs without a GNU one Go's own), and which file is the mapped one. What
is read was written by others: anything wrong with it is BadElf."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from remoteprof.modules import Line, parse_lines

if TYPE_CHECKING:
    from remoteprof._native import Mapping


class BadElf(Exception):
    """Not an ELF file, or a broken one."""


def _build_id(source: int | bytes) -> str:
    from remoteprof import _native

    try:
        return _native.build_id(source) or _native.go_build_id(source)
    except ValueError as error:
        raise BadElf(str(error)) from None


def build_id_of_image(image: bytes) -> str:
    """The build id of an ELF file as it lies in memory, such as the vDSO; "" = none. Raises BadElf."""
    return _build_id(image)


def build_id_of_file(path: str, mapping: Line | Mapping) -> str | None:
    """The build id of the file at `path`, "" = none; None where it is not the file of `mapping`. Raises OSError and
    BadElf. Each file is read once."""
    descriptor = open_regular(path)
    if descriptor is None:
        return None
    try:
        status = os.fstat(descriptor)
        if not is_mapped(descriptor, status, mapping):
            return None
        return _cached(_Key((status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size), descriptor))
    finally:
        os.close(descriptor)


def open_regular(path: str) -> int | None:
    """A descriptor to read the regular file at `path` with; None for any other kind of file: a pipe would hold us up,
    and some devices do things when they are opened. Raises OSError."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            return None
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(place)


class _Key:
    """A file's identity as a cache key, which brings the open file along for a miss."""

    def __init__(self, identity: tuple[int, int, int, int], descriptor: int) -> None:
        self.identity = identity
        self.descriptor = descriptor

    def __hash__(self) -> int:
        return hash(self.identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.identity == other.identity


@functools.lru_cache(maxsize=4096)
def _cached(key: _Key) -> str:
    return _build_id(key.descriptor)


def is_mapped(descriptor: int, status: os.stat_result, mapping: Line | Mapping) -> bool:
    """Whether an open file is the one that is mapped."""
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    if (device, status.st_ino) == (mapping.device, mapping.inode):
        return True
    # On overlayfs and btrfs stat and maps tell different numbers of the same file: ask the kernel to show ours in maps.
    if status.st_size == 0:
        return False
    with contextlib.suppress(OSError, ValueError):
        return _identity_in_maps(descriptor) == (mapping.device, mapping.inode)
    return False


def _identity_in_maps(descriptor: int) -> tuple[str, int] | None:
    """Device and inode by which the kernel shows an open file in a maps text: by mapping it here for a moment."""
    with mmap.mmap(descriptor, 1, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as view:
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        lines, _ = parse_lines(Path("/proc/self/maps").read_text(errors="surrogateescape"))
    return next(((line.device, line.inode) for line in lines if line.start <= address < line.end), None)
