"""Mappings → modules."""

import contextlib
import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from support.targets import sleeps, wait_until

from remoteprof.modules import FAKE, Line, Module, Reader, kept, parse_lines, parse_maps
from remoteprof.modules.elf import BadElf, build_id_of_file, build_id_of_image

CAT = """\
00400000-0040b000 r-xp 00000000 fc:01 787766                             /bin/cat
0060a000-0060b000 r--p 0000a000 fc:01 787766                             /bin/cat
0060b000-0060c000 rw-p 0000b000 fc:01 787766                             /bin/cat
014ab000-014cc000 rw-p 00000000 00:00 0                                  [heap]
7f7d76af8000-7f7d7797c000 r--p 00000000 fc:01 1318064                    /usr/lib/locale/locale-archive
7f7d7797c000-7f7d77b36000 r-xp 00000000 fc:01 1180226                    /lib/x86_64-linux-gnu/libc-2.19.so
7f7d77b36000-7f7d77d36000 ---p 001ba000 fc:01 1180226                    /lib/x86_64-linux-gnu/libc-2.19.so
7f7d77d36000-7f7d77d3a000 r--p 001ba000 fc:01 1180226                    /lib/x86_64-linux-gnu/libc-2.19.so
7f7d77d3a000-7f7d77d3c000 rw-p 001be000 fc:01 1180226                    /lib/x86_64-linux-gnu/libc-2.19.so
7f7d77d3c000-7f7d77d41000 rw-p 00000000 00:00 0
7f7d77d41000-7f7d77d64000 r-xp 00000000 fc:01 1180217                    /lib/x86_64-linux-gnu/ld-2.19.so
7f7d77f3f000-7f7d77f42000 rw-p 00000000 00:00 0
7f7d77f61000-7f7d77f63000 rw-p 00000000 00:00 0
7f7d77f63000-7f7d77f64000 r--p 00022000 fc:01 1180217                    /lib/x86_64-linux-gnu/ld-2.19.so
7f7d77f64000-7f7d77f65000 rw-p 00023000 fc:01 1180217                    /lib/x86_64-linux-gnu/ld-2.19.so
7f7d77f65000-7f7d77f66000 rw-p 00000000 00:00 0
7ffc342a2000-7ffc342c3000 rw-p 00000000 00:00 0                          [stack]
7ffc34343000-7ffc34345000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 r-xp 00000090 00:00 0                  [vsyscall]
"""
CAT_MODULES = [
    Module(0x400000, 0x40B000, 0, "/bin/cat"),
    Module(0x7F7D7797C000, 0x7F7D77B36000, 0, "/lib/x86_64-linux-gnu/libc-2.19.so"),
    Module(0x7F7D77D41000, 0x7F7D77D64000, 0, "/lib/x86_64-linux-gnu/ld-2.19.so"),
    Module(0x7FFC34343000, 0x7FFC34345000, 0, "[vdso]"),
    Module(0xFFFFFFFFFF600000, 0xFFFFFFFFFF601000, 0x90, "[vsyscall]"),
]


def test_the_executable_named_ranges_of_a_listing():
    assert parse_maps(CAT) == CAT_MODULES


def test_deleted_is_cut_off_once():
    assert parse_maps(CAT.replace("/bin/cat", "/bin/cat (deleted)")) == CAT_MODULES
    [twice] = parse_maps("1000-2000 r-xp 0 fc:01 7 /x (deleted) (deleted)")
    assert twice.path == "/x (deleted)"


def test_spaces_belong_to_a_name():
    modules = parse_maps(CAT.replace("/bin/cat", "/bin/cat with space"))
    assert modules[0].path == "/bin/cat with space"
    assert modules[1:] == CAT_MODULES[1:]


def test_an_unnamed_range_is_skipped_and_the_next_not_moved():
    text = (
        "00400000-07000000 r-xp 00000000 00:00 0\n"
        "07000000-07093000 r-xp 06c00000 00:2e 536754     /path/to/gobench_server_main\n"
    )
    assert parse_maps(text) == [Module(0x7000000, 0x7093000, 0x6C00000, "/path/to/gobench_server_main")]


@pytest.mark.parametrize("text", ["", "\n\n", "nonsense", "1000-2000 rw-p 0 0:0 0 /x", "1000-2000 r-xp 0 0:0 0"])
def test_without_any_module_there_is_the_fake_one(text):
    assert parse_maps(text) == [FAKE] == [Module(0, 0, 0, "", "")]


def test_a_bad_line_is_counted_and_the_rest_still_counts():
    lines, bad = parse_lines(f"zzz-1 r-xp 0 0:0 0 /a\n1-2 rx 0 0:0 0 /b\n{CAT}-1--2 r-xp\n" + "9" * 100_000)
    assert bad == 4
    assert [line.path for line in lines if kept(line)] == [module.path for module in CAT_MODULES]


def test_modules_of_a_process_main_binary_first(native, target):
    reader = Reader(native.Target(target.pid))
    reader.look()
    modules = reader.modules()
    assert Path(modules[0].path).samefile(shutil.which("sleep"))
    assert [module.start for module in modules[1:]] == sorted(module.start for module in modules[1:])
    by_name = {Path(module.path).name: module for module in modules}
    assert bytes.fromhex(by_name["[vdso]"].build_id)
    if "[vsyscall]" in by_name:
        assert by_name["[vsyscall]"].build_id == ""
    assert reader.unreadable == 0


@pytest.fixture
def copy(tmp_path):
    """A program of its own, running under a name with a space in it."""
    program = tmp_path / "a program"
    shutil.copy(shutil.which("sleep"), program)
    process = subprocess.Popen([program, "1000"])
    wait_until(lambda: sleeps(process.pid), "a program that sleeps")
    yield program, process.pid
    process.kill()
    process.wait()


def image_of(path):
    return build_id_of_image(path.read_bytes())


def test_a_deleted_program_keeps_its_build_id(native, copy):
    program, pid = copy
    expected = image_of(program)
    program.unlink()
    reader = Reader(native.Target(pid))
    reader.look()
    assert reader.modules()[0][3:] == (str(program), expected)


def test_a_namesake_in_the_place_of_the_program_is_never_read(native, copy):
    program, pid = copy
    expected = image_of(program)
    program.rename(program.with_name("old"))
    shutil.copy(shutil.which("cat"), program)
    assert image_of(program) != expected
    reader = Reader(native.Target(pid))
    reader.look()
    first = reader.modules()[0]
    assert first.build_id == expected
    assert first.path in (str(program), str(program.with_name("old")))


def test_a_file_is_known_by_what_the_kernel_shows_of_it(tmp_path):
    program = tmp_path / "program"
    shutil.copy(shutil.which("sleep"), program)
    with program.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        lines, _ = parse_lines(Path("/proc/self/maps").read_text())
        [line] = [line for line in lines if line.path == str(program)]
    assert build_id_of_file(str(program), line) == image_of(program)
    assert build_id_of_file(str(program), line._replace(inode=line.inode + 1)) is None
    assert build_id_of_file(str(program), line._replace(device="ff:ff")) is None


def test_a_pipe_in_the_place_of_a_file_does_not_hold_us_up(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    line = Line(0x1000, 0x2000, "r-xp", 0, "00:00", 1, str(tmp_path / "pipe"))
    assert build_id_of_file(line.path, line) is None


def test_what_was_unmapped_gives_way_to_what_came_after():
    reader = Reader(type("Gone", (), {"pid": 0x7FFFFFFF})())
    reader.add(
        [Line(0x1000, 0x3000, "r-xp", 0, "00:00", 0, "[old]"), Line(0x8000, 0x9000, "r-xp", 0, "00:00", 0, "[stays]")]
    )
    reader.add([Line(0x2000, 0x4000, "r-xp", 0, "00:00", 0, "[new]")])
    assert [module.path for module in reader.modules()] == ["[new]", "[stays]"]


def elf(note=b"", count=1, size=None, offset=64 + 56):
    """An ELF file with `count` program headers for one note."""
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01" + bytes(9), 3, 62, 1, 0, 64, 0, 0, 64, 56, count, 0, 0, 0
    )
    program = struct.pack("<IIQQQQQQ", 4, 4, offset, 0, 0, len(note) if size is None else size, 0, 4)
    return header + program + note


BUILD_ID = struct.pack("<III4s", 4, 20, 3, b"GNU\0") + bytes(range(20))


def test_a_build_id_is_found_after_other_notes():
    other = struct.pack("<III8s", 6, 4, 9, b"Other\0\0\0") + bytes(4)
    assert build_id_of_image(elf(BUILD_ID)) == bytes(range(20)).hex()
    assert build_id_of_image(elf(other + BUILD_ID)) == bytes(range(20)).hex()
    assert build_id_of_image(elf(other)) == ""


@pytest.mark.parametrize(
    "image",
    [
        b"",
        b"\x7fELF",
        b"not an ELF file at all",
        elf(BUILD_ID, count=65535),
        elf(bytes(1 << 20)),  # notes without content, one after the other
        elf(BUILD_ID, size=1 << 62),
        elf(struct.pack("<III", 0xFFFFFFFF, 0xFFFFFFFF, 3)),
        elf(BUILD_ID, offset=1 << 63),
    ],
    ids=["empty", "magic", "text", "headers", "endless", "size", "lengths", "offset"],
)
def test_a_hostile_file_has_no_build_id_and_does_no_harm(image):
    try:
        found = build_id_of_image(image)
    except BadElf:
        return
    assert found in ("", bytes(range(20)).hex())


def test_every_cut_and_every_changed_byte_is_an_answer_or_bad_elf():
    image = elf(BUILD_ID)
    for position in range(len(image)):
        for broken in (image[:position], image[:position] + b"\xff" + image[position + 1 :]):
            with contextlib.suppress(BadElf):
                build_id_of_image(broken)
