"""Names from foreign memory: made harmless, and made short."""

from __future__ import annotations

import posixpath


def printable(text: str) -> str:
    """`text` with everything escaped that a terminal or a page would obey or hide: controls, bidi, lone surrogates."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(ord(character)) for character in text)


def base_name(path: str) -> str:
    """The last part of a path of either system; the whole where that is empty."""
    return posixpath.basename(path.replace("\\", "/")) or path


def _escaped(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00  # a byte that was no UTF-8
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
