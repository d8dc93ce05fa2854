"""Build ids from ELF files and images, by pyelftools. What is read was written by others: every read is bounded, and
anything wrong with it is BadElf."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import mmap
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection
from elftools.elf.segments import NoteSegment

from remoteprof.modules import Line, parse_lines

if TYPE_CHECKING:
    from remoteprof._native import Mapping

MAX_READS = 20_000
"""Reads of one file: a program has a few hundred headers at most, a few notes, and some fields each."""
MAX_READ = 1 << 16
"""Bytes of one read: the longest thing looked at is a note."""
MAX_ID = 64
"""Bytes of a build id; SHA-1 has 20."""


_ID = re.compile(f"[0-9a-f]{{2,{2 * MAX_ID}}}")


class BadElf(Exception):
    """Not an ELF file, or a broken one."""


class _Bounded(io.RawIOBase):
    """A stream that ends a reader which reads too much."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self._reads += 1
        if self._reads > MAX_READS or size is None or not 0 <= size <= MAX_READ:
            raise BadElf("reads too much")
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()


def _build_id(stream: BinaryIO) -> str:
    """The GNU build id in hex; "" where there is none. Raises BadElf."""
    try:
        elf = ELFFile(_Bounded(stream))  # type: ignore[arg-type]
        parts: list[Any] = [
            segment for segment in elf.iter_segments("PT_NOTE") if isinstance(segment, NoteSegment)
        ] or [
            section
            for section in elf.iter_sections("SHT_NOTE")
            if isinstance(section, NoteSection) and section["sh_flags"] & SH_FLAGS.SHF_ALLOC
        ]
        for part in parts:
            for note in part.iter_notes():
                if note["n_name"] == "GNU" and note["n_type"] == "NT_GNU_BUILD_ID":
                    found = note["n_desc"]
                    if isinstance(found, str) and _ID.fullmatch(found):
                        return found
        return ""
    except BadElf:
        raise
    except Exception as error:
        # pyelftools checks little: a broken file shows as whatever its broken number leads to, in any class.
        raise BadElf(str(error)) from None


def build_id_of_image(image: bytes) -> str:
    """The build id of an ELF file as it lies in memory, such as the vDSO; "" = none. Raises BadElf."""
    return _build_id(io.BytesIO(image))


def build_id_of_file(path: str, mapping: Line | Mapping) -> str | None:
    """The build id of the file at `path`, "" = none; None where it is not the file of `mapping`. Raises OSError and
    BadElf. Each file is read once."""
    # O_NONBLOCK: a pipe put in the file's place must not hold us up.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not is_mapped(descriptor, status, mapping):
            return None
        return _cached(_Key((status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size), descriptor))
    finally:
        os.close(descriptor)


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
    with open(key.descriptor, "rb", buffering=4096, closefd=False) as stream:
        return _build_id(stream)


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
