"""The loader as a function of hostile bytes: run over fixed mutations by tests/unit, and with coverage as its guide by
tests/fuzz/loader.py."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Iterator

from remoteprof.errors import RemoteprofError
from remoteprof.formats import pprof
from remoteprof.profile.loading import parse
from remoteprof.profile.model import Profile
from support.generated import large


def loaded(content: bytes) -> Profile | None:
    """Loads a profile; None where that is refused with an error for people. What is loaded must be written, and be the
    same when it is loaded again."""
    try:
        profile = parse(content, "fuzzed", signed=True)
    except RemoteprofError as error:
        assert str(error).startswith("fuzzed: ") and "\n" not in error.message
        return None
    once = written(profile)
    assert written(parse(once, "written", signed=True)) == once
    return profile


def written(profile: Profile) -> bytes:
    """The profile as pprof, not compressed."""
    stream = io.BytesIO()
    pprof.write(profile, stream, compress=False)
    return stream.getvalue()


def seeds() -> list[bytes]:
    """Small profiles of every kind that is read."""
    gperftools = struct.pack("<13Q", 0, 3, 0, 2000, 0, 20, 2, 0x400000, 0x400002, 0, 1, 0, 0)[:-8]
    maps = b"00400000-00401000 r-xp 00000000 fc:01 787766 /bin/gone\n"
    small = large(stacks=10, depth=4, functions=8)
    compressed = io.BytesIO()
    pprof.write(small, compressed)
    return [written(small), compressed.getvalue(), gperftools + maps, b""]


def mutations(count: int) -> Iterator[bytes]:
    """Damaged seeds, the same ones each time: bits turned, pieces cut out, doubled and moved, lengths blown up."""
    draw = random.Random(20)
    of = seeds()
    for _ in range(count):
        content = bytearray(draw.choice(of))
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(content) + 1)
            piece = bytes(content[at : at + draw.randint(1, 32)])
            kind = draw.randrange(5)
            if kind == 0 and piece:
                content[at] ^= 1 << draw.randrange(8)
            elif kind == 1:
                del content[at : at + len(piece)]
            elif kind == 2:
                place = draw.randrange(len(content) + 1)
                content[place:place] = piece
            elif kind == 3:
                content[at : at + len(piece)] = draw.randbytes(len(piece))
            else:
                content[at : at + 1] = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"[: draw.randint(1, 9)]
        yield bytes(content)
