"""Names of native code: of living programs, separate debug files, changed files, perf maps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.symbols import address_of, build, code_of, running

from remoteprof import _native
from remoteprof.symbols import Symbols


def test_a_program_with_inlined_calls(tmp_path: Path) -> None:
    path = build(tmp_path)
    with running(path) as target:
        start = address_of(target, path, "outer")
        symbols = Symbols(target)
        found = symbols.lines(target.mappings(), range(start, start + 40))
        chains = {tuple(line.name for line in lines) for lines in found.values()}
        assert ("outer",) in chains
        assert any(chain[-1] == "outer" and "middle" in chain for chain in chains)
        outer = found[start][-1]
        assert outer.file == str(tmp_path / "program.c")
        assert outer.line == outer.start_line > 0
        assert outer.system_name == "outer"
        assert symbols.sources(code_of(target, path)).debug_info


def test_no_address_is_asked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(tmp_path)
    with running(path) as target:
        start = address_of(target, path, "outer")
        symbols = Symbols(target)
        first = symbols.lines(target.mappings(), [start])
        monkeypatch.setattr(_native, "symbolize", None)
        assert symbols.lines(target.mappings(), [start, start]) == first


def test_libc_and_the_vdso_have_names(tmp_path: Path) -> None:
    path = build(tmp_path)
    with running(path) as target:
        mappings = target.mappings()
        symbols = Symbols(target)
        pc = int(Path(f"/proc/{target.pid}/syscall").read_text().split()[-1], 16)
        names = [line.name for line in symbols.lines(mappings, [pc])[pc]]
        assert any("pause" in name for name in names)
        vdso = code_of(target, "[vdso]")
        found = symbols.lines(mappings, range(vdso.start, vdso.end, 16))
        assert {"clock_gettime", "gettimeofday", "time", "getcpu"} <= {lines[-1].name for lines in found.values()}


def test_the_vdso_after_the_end(tmp_path: Path) -> None:
    with running(build(tmp_path)) as target:
        mappings = target.mappings()
        symbols = Symbols(target)
        symbols.look(mappings)
    vdso = next(mapping for mapping in mappings if mapping.path == "[vdso]")
    assert symbols.lines(mappings, range(vdso.start, vdso.end, 16))


def test_a_program_that_has_ended(tmp_path: Path) -> None:
    path = build(tmp_path)
    with running(path) as target:
        start = address_of(target, path, "outer")
        mappings = target.mappings()
    assert Symbols(target).lines(mappings, [start])[start][-1].name == "outer"


def test_stripped_with_a_debug_file(tmp_path: Path) -> None:
    full = build(tmp_path, name="full")
    path = tmp_path / "program"
    subprocess.run(["objcopy", "--only-keep-debug", full, "program.debug"], cwd=tmp_path, check=True)
    subprocess.run(["objcopy", "-S", "--add-gnu-debuglink=program.debug", full, path], cwd=tmp_path, check=True)
    with running(path) as target:
        start = address_of(target, path, "outer")
        symbols = Symbols(target)
        line = symbols.lines(target.mappings(), [start])[start][-1]
        assert (line.name, line.line) == ("outer", line.start_line)
        assert symbols.sources(code_of(target, path)).debug_file == str(tmp_path / "program.debug")


def test_a_replaced_file_is_not_used(tmp_path: Path) -> None:
    path = build(tmp_path)
    with running(path) as target:
        start = address_of(target, path, "outer")
        mappings = target.mappings()
        path.unlink()
        build(tmp_path, "-O0")
        symbols = Symbols(target)
        # The deleted file is still there, through /proc; a namesake is not taken.
        found = symbols.lines(mappings, [start])
        assert found == {} or found[start][-1].name == "outer"
    assert Symbols(target).lines(mappings, [start]) == {}


def test_a_file_rewritten_in_place_is_not_used(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    (tmp_path / "library.c").write_text("int first(int x) { return x * 3; }\n")
    other = tmp_path / "other.so"
    (tmp_path / "other.c").write_text("int second(int x) { return x * 5; }\n")
    flags = ["-g", "-O1", "-shared", "-fPIC", "-Wl,--build-id"]
    for source, into in ((tmp_path / "library.c", library), (tmp_path / "other.c", other)):
        subprocess.run(["gcc", *flags, "-o", into, source], check=True)
    program = f"import ctypes, time; ctypes.CDLL({str(library)!r}).first(1); time.sleep(60)"
    with running(sys.executable, "-c", program) as target:
        mapping = code_of(target, library)
        everything = range(mapping.start, mapping.end)
        before = Symbols(target).lines([mapping], everything)
        assert any(lines[-1].name == "first" for lines in before.values())
        symbols = Symbols(target)
        symbols.look([mapping])
        # Same inode, other content; no truncation, which would end the target.
        with library.open("r+b") as stream:
            stream.write(other.read_bytes())
        assert symbols.lines([mapping], everything) == {}
        assert "changed" in symbols.sources(mapping).refused


def test_a_perf_map(tmp_path: Path) -> None:
    program = (
        "import mmap, time\n"
        "flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS\n"
        "code = mmap.mmap(-1, 4096, flags, mmap.PROT_READ | mmap.PROT_EXEC)\n"
        "time.sleep(60)"
    )
    with running(sys.executable, "-c", program) as target:
        mappings = target.mappings()
        code = next(mapping for mapping in mappings if mapping.permissions[2] == "x" and not mapping.path)
        path = Path(f"/tmp/perf-{target.pid}.map")
        try:
            path.write_text(f"{code.start:x} 40 jit:one\ngarbage\n{code.start + 0x20:x} 20 jit two with spaces\n")
            symbols = Symbols(target)
            found = symbols.lines(mappings, [code.start, code.start + 0x20, code.start + 0x40])
            assert {address - code.start: lines[0].name for address, lines in found.items()} == {
                0: "jit:one",
                0x20: "jit two with spaces",
            }
        finally:
            path.unlink()


def test_perf_maps_that_are_not_trusted(tmp_path: Path) -> None:
    with running(sys.executable, "-c", "import time; time.sleep(60)") as target:
        path = Path(f"/tmp/perf-{target.pid}.map")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.write_text("1000 10 name\n")
        try:
            path.symlink_to(elsewhere)
            with pytest.raises(OSError):
                _native.perf_map(target.pid)
            path.unlink()
            os.mkfifo(path)
            with pytest.raises(OSError):
                _native.perf_map(target.pid)
            path.unlink()
            path.mkdir()
            with pytest.raises(OSError):
                _native.perf_map(target.pid)
            path.rmdir()
        finally:
            if path.is_dir():
                path.rmdir()
            path.unlink(missing_ok=True)


def test_what_is_no_file() -> None:
    for source in (b"", b"\x7fELF", b"\x7fELF\x02\x01\x01" + bytes(57)):
        try:
            told = _native.symbolize(source, 0, 0, [0, 1 << 63])
        except ValueError:
            continue
        assert told["lines"] == [[], []]
    with pytest.raises(OSError):
        _native.symbolize(12345, 0, 0, [0])
    with pytest.raises(ValueError):
        _native.symbolize(b"", 0, 0, [0], build_id="no hex")
