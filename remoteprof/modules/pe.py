"""Modules of Windows, with identity: GUID and age of the CodeView record, as symbol servers go by them; without one
time stamp and size, which they use for programs; last the path and when the file was written.

What the file says counts only where it is the file that is mapped: where its headers are those in memory.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from remoteprof.modules import Line, Module, Reader

if TYPE_CHECKING:
    import pefile

    from remoteprof._native import Mapping

HEAD_BYTES = 4096
"""Bytes of a module in memory that are read: its headers."""
MAX_FILE = 2 << 30
"""Largest file that is looked into."""
MAX_DEBUG_BYTES = 64 * 28
"""Largest debug directory that is believed: 64 entries, where linkers write about four."""


class Head(NamedTuple):
    """What the headers of a module say of it."""

    time_stamp: int
    size: int
    checksum: int


def head_of(content: bytes) -> Head | None:
    """The headers of a module as they lie in memory, or at the start of a file; None where there are none."""
    import pefile

    try:
        return _head(pefile.PE(data=content, fast_load=True))
    except (pefile.PEFormatError, AttributeError, IndexError, ValueError):
        return None


def _head(pe: pefile.PE) -> Head:
    optional = pe.OPTIONAL_HEADER
    return Head(pe.FILE_HEADER.TimeDateStamp, optional.SizeOfImage, optional.CheckSum)


def id_of_file(path: str, head: Head | None) -> str | None:
    """The GUID and age of the file at `path`, "" = it has none; None where it cannot be read, or is not that of
    `head`."""
    import pefile

    try:
        if Path(path).stat().st_size > MAX_FILE:
            return None
        with pefile.PE(path, fast_load=True) as pe:
            if head is not None and _head(pe) != head:
                return None
            debug = pefile.DIRECTORY_ENTRY["IMAGE_DIRECTORY_ENTRY_DEBUG"]
            directories = pe.OPTIONAL_HEADER.DATA_DIRECTORY
            if len(directories) <= debug or directories[debug].Size > MAX_DEBUG_BYTES:
                return ""
            pe.parse_data_directories([debug])
            for record in getattr(pe, "DIRECTORY_ENTRY_DEBUG", []):
                # Only records of the newer kind (RSDS) have a GUID.
                found = getattr(record.entry, "Signature_String", "")
                if found:
                    return str(found)
    except (OSError, pefile.PEFormatError, AttributeError, IndexError, ValueError):
        return None
    return ""


def build_id(path: str, memory: bytes) -> str:
    """The identity of the module at `path`, whose first bytes in memory are `memory` (b"" = not to be had)."""
    head = head_of(memory) if memory else None
    found = id_of_file(path, head)
    if found:
        return found
    if head is not None:
        return f"{head.time_stamp:08X}{head.size:x}"
    try:
        written = datetime.datetime.fromtimestamp(Path(path).stat().st_mtime, datetime.timezone.utc)
    except (OSError, ValueError, OverflowError):
        return path
    return f"{path} {written.isoformat(timespec='seconds')}"


class PeReader(Reader):
    """Reads the modules of one process of Windows, repeatedly."""

    def look(self, more: Iterable[Mapping] = ()) -> None:
        """Reads what is loaded now, and adds it, and `more`, to what was seen. Raises as Target.modules does."""
        # Which only a target on Windows has.
        mapped, self.trouble = cast(Any, self.target).modules()
        if mapped:
            self._main = mapped[0].path
        self.add(mapped)
        self.add(more)

    def head(self, module: Module) -> Head | None:
        """The headers of a module as they lie in memory."""
        return head_of(self._memory(module.start))

    def _memory(self, start: int) -> bytes:
        try:
            return self.target.read(start, HEAD_BYTES)
        except OSError:
            return b""

    def _build_id(self, mapping: Line | Mapping) -> str:
        key = (f"{mapping.start:x}", mapping.end - mapping.start, mapping.path)
        if key not in self._ids:
            self._ids[key] = build_id(mapping.path, self._memory(mapping.start))
        return self._ids[key]
