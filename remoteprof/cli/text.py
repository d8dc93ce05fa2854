"""Text for people: what is said to them, durations, file names."""

from __future__ import annotations

import contextlib
import math
import re
import sys

from remoteprof.text import printable

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(us|ms|s|m|h|)")
_SIZE = re.compile(r"([0-9]{1,12})(|[KkMmGg])(?:i?B)?")
_UNITS = {"us": 1e3, "ms": 1e6, "s": 1e9, "": 1e9, "m": 60e9, "h": 3600e9}


def say(*lines: str) -> None:
    """Prints lines to stderr, made harmless; nowhere if that is closed."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write("".join(f"{printable(line)}\n" for line in lines))
            sys.stderr.flush()


def parse_duration(text: str) -> int:
    """Nanoseconds of a duration such as 500ms, 10s, 2m, 1h, or bare seconds. Raises ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 500ms, 10s, 2m or 1h")
    value = float(match[1]) * _UNITS[match[2]]
    if not math.isfinite(value) or not 1 <= value < 1 << 63:
        raise ValueError(f"{text!r} is not a possible duration")
    return round(value)


def parse_size(text: str) -> int:
    """Bytes of a size such as 64KiB, 2MiB, or bare bytes. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 64KiB or 2MiB")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]


def safe_file_name(name: str) -> str:
    """`name` as a part of a file name: short, visible, no separators, not hidden."""
    return re.sub(r"[^\w.+-]+", "_", name)[:64].lstrip(".-") or "process"
