"""Names of native code through a whole recording: where they come from, and what is not used."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from support import cli
from support.targets import TARGETS, Running, interpreter, started

SOURCE = TARGETS / "native" / "names.c"
UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]


def build(folder: Path, *flags: str, name: str = "program") -> Path:
    subprocess.run(["gcc", "-O2", "-g", "-Wl,--build-id", *flags, "-o", folder / name, SOURCE], check=True)
    return folder / name


def objcopy(folder: Path, *arguments: str) -> None:
    subprocess.run(["objcopy", *arguments], cwd=folder, check=True)


def build_id(path: Path) -> str:
    text = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True).stdout
    return next(line.split()[-1] for line in text.splitlines() if "Build ID" in line)


def frames(pid: int, folder: Path, **environment: str) -> set[tuple[str, str, int]]:
    """Function, file and line of every frame that a recording of the process has."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DEBUGINFOD")}
    recording = cli.attach(pid, folder, 0.5, 200, env={**clean, **environment})
    found = {(frame.qualified, frame.file, frame.line) for row in recording.profile.samples for frame in row.frames}
    assert found
    return found


def names(found: set[tuple[str, str, int]]) -> set[str]:
    return {name for name, _, _ in found}


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line)


def has_lines(found: set[tuple[str, str, int]]) -> bool:
    """Whether the inlined call is there too, and both have a line."""
    mixed = range(line_of("uint64_t mixed"), line_of("return x ^ x << 17") + 1)
    return any(name == "mixed" and line in mixed for name, _, line in found) and any(
        name == "hot" and file == str(SOURCE) and line > 0 for name, file, line in found
    )


def inner_pid(outer: int) -> int:
    """The process that `unshare` started."""
    return int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])


@contextmanager
def apart(script: str) -> Iterator[tuple[Running, int]]:
    """A shell script in mount and pid namespaces of its own, and the pid of what it ends up as."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    with started([*UNSHARE, *as_root, "sh", "-ec", script]) as outer:
        yield outer, inner_pid(outer.pid)


def test_its_own_debug_information(tmp_path: Path) -> None:
    with started([build(tmp_path)]) as target:
        assert has_lines(frames(target.pid, tmp_path))


def test_a_debug_file_by_its_link(tmp_path: Path) -> None:
    build(tmp_path, "-Wl,--build-id=none", name="full")
    (tmp_path / ".debug").mkdir()
    objcopy(tmp_path, "--only-keep-debug", "full", ".debug/program.debug")
    objcopy(tmp_path, "-S", "--add-gnu-debuglink=.debug/program.debug", "full", "program")
    with started([tmp_path / "program"]) as target:
        assert has_lines(frames(target.pid, tmp_path))
        told = cli.remoteprof("modules", target.pid).stdout.splitlines()
    assert f"debug info: {tmp_path}/.debug/program.debug" in told[1]
    assert "unwind tables: .eh_frame; symbols: .symtab of the debug file" in told[1]


def test_a_debug_file_by_build_id_in_the_target_s_own_root(tmp_path: Path) -> None:
    # In a root of its own there is no loader: a static program needs none.
    build(tmp_path, "-static", name="full")
    objcopy(tmp_path, "-S", "full", "program")
    found = build_id(tmp_path / "full")
    folder = f"/usr/lib/debug/.build-id/{found[:2]}"
    objcopy(tmp_path, "--only-keep-debug", "full", "debug")
    script = (
        f"mkdir -p {tmp_path}/root{folder}; cp {tmp_path}/debug {tmp_path}/root{folder}/{found[2:]}.debug;"
        f"cp {tmp_path}/program {tmp_path}/root/program; exec chroot {tmp_path}/root /program"
    )
    with apart(script) as (_, pid):
        assert has_lines(frames(pid, tmp_path))
        rows = cli.remoteprof("modules", pid).stdout
    assert f"debug info: {folder}/{found[2:]}.debug" in rows


def test_mini_debug_info(tmp_path: Path) -> None:
    build(tmp_path, name="full")
    objcopy(tmp_path, "--strip-debug", "full", "mini")
    subprocess.run(["xz", "mini"], cwd=tmp_path, check=True)
    objcopy(tmp_path, "-S", "--add-section", ".gnu_debugdata=mini.xz", "full", "program")
    with started([tmp_path / "program"]) as target:
        found = frames(target.pid, tmp_path)
        told = cli.remoteprof("modules", target.pid).stdout.splitlines()
    assert ("hot", "", 0) in found
    assert ".gnu_debugdata; debug info: none" in told[1]


class Handler(BaseHTTPRequestHandler):
    files: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        content = self.files.get(self.path)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_a_debuginfod_server(tmp_path: Path) -> None:
    full = build(tmp_path, name="full")
    objcopy(tmp_path, "-S", "full", "program")
    Handler.files = {f"/buildid/{build_id(full)}/debuginfo": full.read_bytes()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cache = str(tmp_path / "cache")
    try:
        with started([tmp_path / "program"]) as target:
            assert "hot" not in names(frames(target.pid, tmp_path, DEBUGINFOD_CACHE_PATH=cache))
            url = f"http://127.0.0.1:{server.server_port}"
            assert has_lines(frames(target.pid, tmp_path, DEBUGINFOD_URLS=url, DEBUGINFOD_CACHE_PATH=cache))
    finally:
        server.shutdown()
        server.server_close()


def test_a_file_that_was_replaced_is_not_used(tmp_path: Path) -> None:
    program = build(tmp_path)
    with started([program]) as target:
        other = build(tmp_path, "-DHOT=cold", name="other")
        other.rename(program)
        found = names(frames(target.pid, tmp_path))
    assert "cold" not in found
    # The old one is still to be had through /proc by who may look there.
    assert "hot" in found or os.geteuid() != 0


@pytest.fixture
def perf_maps() -> Iterator[list[Path]]:
    """Files of /tmp to be removed."""
    made: list[Path] = []
    yield made
    for path in made:
        path.unlink(missing_ok=True)


def test_a_perf_map(tmp_path: Path, perf_maps: list[Path]) -> None:
    with started([build(tmp_path), "jit"]) as target:
        perf_maps.append(Path(f"/tmp/perf-{target.pid}.map"))
        found = names(frames(target.pid, tmp_path))
    assert {"jit::hot loop", "main"} <= found
    assert "_ExternalCode" not in found


def test_a_jitdump(tmp_path: Path, perf_maps: list[Path]) -> None:
    """It names the function, and the line in its file."""
    with started([build(tmp_path), "jitdump"]) as target:
        perf_maps.append(Path(f"/tmp/jit-{target.pid}.dump"))
        found = frames(target.pid, tmp_path)
        # Who has mapped it need not leave it there.
        perf_maps[-1].unlink()
        again = frames(target.pid, tmp_path)
    for shown in (found, again):
        assert ("jit::dumped loop", "/src/hot.js", 42) in shown
        assert "_ExternalCode" not in names(shown)


@pytest.mark.parametrize(("version", "option"), (("3.12", "perf"), ("3.13", "perf"), ("3.13", "perf_jit")))
def test_pythons_that_write_names_for_perf(version: str, option: str, tmp_path: Path, perf_maps: list[Path]) -> None:
    """What they call their functions through is no function of its own, though it has their names."""
    source = tmp_path / "named.py"
    # What comes after has the names of what runs written out of the buffer.
    source.write_text(
        "def leaf(n):\n    return sum(range(n))\n"
        "def branch(n):\n    return [leaf(n) for _ in range(100)]\n"
        "branch(1)\n"
        "for number in range(500):\n    exec(f'def later_{number}(): pass\\nlater_{number}()')\n"
        "print('ready', flush=True)\n"
        "while True:\n    branch(1000)\n"
    )
    with started([interpreter(version), "-X", option, source]) as target:
        perf_maps.extend(Path(f"/tmp/{name}") for name in (f"perf-{target.pid}.map", f"jit-{target.pid}.dump"))
        assert any(path.exists() for path in perf_maps)
        profile = cli.attach(target.pid, tmp_path, 1, 200).profile
        everything = cli.attach(target.pid, tmp_path, 1, 200, "--native-all").profile
    python = {frame.name for row in profile.samples for frame in row.frames if not frame.address}
    assert {"leaf", "branch"} <= python
    assert not {name for name in profile.functions() if name.startswith(("py::", "py_trampoline", "_ExternalCode"))}
    shown = {frame.qualified for row in everything.samples for frame in row.frames}
    assert {f"py::{name}:{source}" for name in ("leaf", "branch")} <= shown


def test_a_perf_map_inside_of_namespaces(tmp_path: Path, perf_maps: list[Path]) -> None:
    program = shutil.copy(build(tmp_path), "/var/tmp/remoteprof-names")
    perf_maps.append(Path(program))
    with apart(f"mount -t tmpfs none /tmp; exec {program} jit") as (_, pid):
        # Others' files under its pid here, and under its own there: neither is its own.
        for decoy in (pid, 1):
            perf_maps.append(Path(f"/tmp/perf-{decoy}.map"))
            perf_maps[-1].write_text("0 ffffffffffff decoy\n")
        found = names(frames(pid, tmp_path))
    assert "jit::hot loop" in found and "decoy" not in found


def test_a_perf_map_that_is_a_link_is_not_followed(tmp_path: Path, perf_maps: list[Path]) -> None:
    with started([build(tmp_path), "jit"]) as target:
        path = Path(f"/tmp/perf-{target.pid}.map")
        perf_maps.append(path)
        path.rename(tmp_path / "map")
        path.symlink_to(tmp_path / "map")
        assert "jit::hot loop" not in names(frames(target.pid, tmp_path))


def test_a_perf_map_of_another_user_is_not_read(tmp_path: Path, perf_maps: list[Path]) -> None:
    with started([build(tmp_path), "jit"]) as target:
        path = Path(f"/tmp/perf-{target.pid}.map")
        perf_maps.append(path)
        os.chown(path, 65534, 65534)
        assert "jit::hot loop" not in names(frames(target.pid, tmp_path))
