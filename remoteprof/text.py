"""Names from foreign memory made harmless."""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` with everything escaped that a terminal or a page would obey or hide: controls, bidi, lone surrogates."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(ord(character)) for character in text)


def _escaped(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00  # a byte that was no UTF-8
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
