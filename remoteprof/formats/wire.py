"""Foreign bytes, opened with bounds: gzip, and the top level of a protobuf message.

A small file can become huge: gzip unpacks to a thousandfold, and two bytes of protobuf to an object of a hundred. So
sizes are counted before anything is kept, and messages are taken apart in small pieces.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NoReturn

from remoteprof.errors import RemoteprofError

GZIP = b"\x1f\x8b"
PIECE = 1 << 20
"""Bytes of a message that are parsed at once."""

_STEP = 1 << 16


class Malformed(RemoteprofError):
    """Bytes that are not what they should be."""


def inflate(content: bytes, limit: int) -> bytes:
    """What is compressed in `content`: all its gzip members. Raises Malformed; refuses more than `limit` bytes before
    any of them is kept."""
    size = 0
    for part in _inflated(content):
        size += len(part)
        if size > limit:
            too_large(limit)
    whole = bytearray(size)
    position = 0
    for part in _inflated(content):
        whole[position : position + len(part)] = part
        position += len(part)
    return bytes(whole)


def head(content: bytes, size: int) -> bytes:
    """The first bytes of what is compressed in `content`, up to `size`; none where it is broken."""
    try:
        return zlib.decompressobj(wbits=31).decompress(content[:_STEP], size)
    except zlib.error:
        return b""


def too_large(limit: int) -> NoReturn:
    """Raises the error for something above a limit in bytes."""
    raise RemoteprofError(f"larger than {limit >> 20} MiB")


def _inflated(content: bytes) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=31)
    position = 0
    while position < len(content):
        left = content[position : position + _STEP]
        position += len(left)
        while left:
            try:
                yield member.decompress(left, PIECE)
            except zlib.error as error:
                raise Malformed(str(error)) from None
            left = member.unconsumed_tail
            if member.eof:
                position -= len(member.unused_data)
                if not content[position : position + _STEP].strip(b"\0"):
                    return
                member = zlib.decompressobj(wbits=31)
                left = b""
    if not member.eof:
        raise Malformed("the compressed data ends too early")


def fields(content: bytes) -> dict[int, list[bytearray]]:
    """The top level of a message: field number → all that the message has of it, in pieces of PIECE bytes (and one
    field more) that are messages themselves. Raises Malformed."""
    found: dict[int, list[bytearray]] = {}
    position = begin = 0
    last = -1
    end = len(content)
    try:
        while position < end:
            start = position
            tag = content[position]
            position += 1
            if tag >= 0x80:
                tag, position = _varint(content, start)
            kind = tag & 7
            if kind == 2:
                length = content[position]
                position += 1
                if length >= 0x80:
                    length, position = _varint(content, position - 1)
                position += length
            elif kind == 0:
                _, position = _varint(content, position)
            elif kind == 1:
                position += 8
            elif kind == 5:
                position += 4
            else:
                raise Malformed(f"a field of unknown kind at byte {start}")
            if tag >> 3 != last or start - begin > PIECE:
                _keep(found, last, content, begin, start)
                last, begin = tag >> 3, start
    except IndexError:
        position = end + 1
    if position > end:
        raise Malformed("it ends too early")
    _keep(found, last, content, begin, end)
    return found


def _keep(found: dict[int, list[bytearray]], field: int, content: bytes, begin: int, end: int) -> None:
    if begin == end:
        return
    pieces = found.setdefault(field, [bytearray()])
    if len(pieces[-1]) > PIECE:
        pieces.append(bytearray())
    pieces[-1] += memoryview(content)[begin:end]


def _varint(content: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise Malformed(f"a number that is too long at byte {position}")
