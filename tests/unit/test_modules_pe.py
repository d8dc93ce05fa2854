"""Identity of Windows modules: by CodeView record, else by headers, else by path and time; never of another file."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path
from typing import Any, cast

import pytest
from support.cli import LONG

from remoteprof._native import Mapping
from remoteprof.modules import FAKE, pe

GUID = bytes(range(1, 17))
ID = "0403020106050807090A0B0C0D0E0F107"
STAMP, SIZE = 0x5F3759DF, 0x3000


def image(*, codeview: bytes | None = b"RSDS" + GUID + struct.pack("<I", 7) + b"x.pdb\0", stamp: int = STAMP) -> bytes:
    """A PE file of one section, with a debug directory where there is a record."""
    content = bytearray(0x600)
    content[0:2] = b"MZ"
    struct.pack_into("<I", content, 0x3C, 0x80)
    struct.pack_into("<4sHHIIIHH", content, 0x80, b"PE\0\0", 0x8664, 1, stamp, 0, 0, 240, 0x2022)
    struct.pack_into("<HBBIIIIIQIIHHHHHHIIIIHHQQQQII", content, 0x98, *(
        0x20B, 14, 0, 0x200, 0x200, 0, 0x1000, 0x1000, 0x1_8000_0000, 0x1000, 0x200,
        6, 0, 0, 0, 6, 0, 0, SIZE, 0x400, 0, 3, 0, 0x10_0000, 0x1000, 0x10_0000, 0x1000, 0, 16,
    ))  # fmt: skip
    struct.pack_into("<8sIIIIIIHHI", content, 0x188, b".rdata", 0x200, 0x1000, 0x200, 0x400, 0, 0, 0, 0, 0x40000040)
    if codeview is not None:
        struct.pack_into("<II", content, 0x98 + 112 + 6 * 8, 0x1000, 28)
        struct.pack_into("<IIHHIIII", content, 0x400, 0, stamp, 0, 0, 2, len(codeview), 0x1040, 0x440)
        content[0x440 : 0x440 + len(codeview)] = codeview
    return bytes(content)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.dll"


def test_guid_and_age(path: Path) -> None:
    path.write_bytes(image())
    assert pe.build_id(str(path), image()[: pe.HEAD_BYTES]) == ID
    assert pe.build_id(str(path), b"") == ID, "without memory the file is taken for the mapped one"


def test_time_stamp_and_size_where_there_is_no_record(path: Path) -> None:
    for codeview in (None, b"NB10" + bytes(16) + b"x.pdb\0", b"RSDS"):
        path.write_bytes(image(codeview=codeview))
        assert pe.build_id(str(path), image(codeview=codeview)) == f"{STAMP:08X}{SIZE:x}"


def test_a_namesake_says_nothing(path: Path) -> None:
    path.write_bytes(image(stamp=1))
    assert pe.build_id(str(path), image()) == f"{STAMP:08X}{SIZE:x}"
    path.unlink()
    assert pe.build_id(str(path), image()) == f"{STAMP:08X}{SIZE:x}"


def test_path_and_time_are_the_last_resort(path: Path) -> None:
    path.write_bytes(b"no PE file")
    os.utime(path, (0, 1_000_000_000))
    assert pe.build_id(str(path), b"") == f"{path} 2001-09-09T01:46:40+00:00"
    assert pe.build_id(str(path) + "x", b"") == f"{path}x"


MUTATED = 10_000 if LONG else 1_000
CHANGES = [*range(0, 0x40), *range(0x80, 0x1B0), *range(0x400, 0x460)]
"""Bytes of image() that mean something: headers, section, debug directory, record."""


def mutated(draw: random.Random) -> bytes:
    content = bytearray(image())
    for _ in range(draw.randint(1, 6)):
        at = draw.choice(CHANGES)
        content[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, content[at] ^ (1 << draw.randrange(8)), draw.randrange(256)))
    # One in four is cut, as by a read that ended early.
    return bytes(content) if draw.randrange(4) else bytes(content[: draw.randrange(len(content))])


def test_broken_headers_raise_nothing() -> None:
    draw = random.Random(1)
    known = sum(pe.head_of(mutated(draw)) is not None for _ in range(MUTATED))
    assert MUTATED // 10 < known < MUTATED, "too few, or all, are still taken for headers"


def test_broken_files_raise_nothing(path: Path) -> None:
    draw = random.Random(2)
    ids = set()
    for _ in range(MUTATED // 10):
        path.write_bytes(content := mutated(draw))
        found = pe.build_id(str(path), content)
        # One line of text, whatever stands in the file.
        assert found and found.isprintable() and len(found) < 200
        ids.add(found)
    assert ID in ids and len(ids) > MUTATED // 10 // 20


def test_a_directory_without_an_end_is_not_followed(path: Path) -> None:
    content = bytearray(image())
    struct.pack_into("<I", content, 0x98 + 112 + 6 * 8 + 4, 0xFFFFFFFF)
    path.write_bytes(content)
    assert pe.build_id(str(path), bytes(content)) == f"{STAMP:08X}{SIZE:x}"


class Windows:
    """Target.modules and Target.read of a process, as far as the test says."""

    pid, start_time, name = 7, 1, "x.exe"

    def __init__(self, listed: list[tuple[int, int, str]], trouble: str = "") -> None:
        self.listed, self.trouble = listed, trouble

    def modules(self) -> tuple[list[Mapping], str]:
        return [Mapping(start, end, "r-xp", 0, "", 0, path) for start, end, path in self.listed], self.trouble

    def read(self, address: int, size: int) -> bytes:
        raise OSError("nothing there")


def reader(listed: list[tuple[int, int, str]], trouble: str = "") -> pe.PeReader:
    found = pe.PeReader(cast(Any, Windows(listed, trouble)))
    found.look()
    return found


def test_modules_are_listed_the_program_first() -> None:
    listed = [(0x9000, 0xA000, "C:\\x.exe"), (0x1000, 0x2000, "C:\\a b.dll"), (0x3000, 0x4000, "C:\\c.dll")]
    found = reader(listed)
    assert [(module.start, module.end, module.path) for module in found.modules()] == listed
    assert {module.offset for module in found.modules()} == {0}
    assert found.trouble == ""


def test_no_list_is_the_fake_module_and_is_said() -> None:
    found = reader([], "the modules cannot be listed: Module32First failed with error 5")
    assert found.modules() == [FAKE]
    assert "error 5" in found.trouble


def test_what_was_unloaded_stays_known_until_its_place_is_taken() -> None:
    found = reader([(0x9000, 0xA000, "x.exe"), (0x1000, 0x2000, "a.dll")])
    windows = cast(Windows, found.target)
    windows.listed = [(0x9000, 0xA000, "x.exe")]
    found.look()
    assert len(found.modules()) == 2
    windows.listed.append((0x1000, 0x1800, "b.dll"))
    found.look()
    assert [module.path for module in found.modules()] == ["x.exe", "b.dll"]
