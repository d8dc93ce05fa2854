"""Targets that are not plainly there: in a container's root or PID namespace, stripped, replaced, deleted, renamed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support import cli, pprof, stats
from support.targets import Running, interpreter, started, wait_until
from support.two_threads import PROGRAM, judge

ROOTLESS = [] if os.geteuid() == 0 else ["--map-root-user"]


def unshare(*options: str) -> list[str]:
    assert shutil.which("unshare"), "unshare (util-linux) is not here"
    return ["unshare", *ROOTLESS, *options]


def judged(pid: int, directory: Path) -> pprof.Profile:
    """Record it; both threads must have been read."""
    recording = cli.attach(pid, directory, 1, 500)
    judge(recording, pid)
    return recording.profile


def descendant(target: Running, name: str) -> int:
    """The process below `target` that runs this file."""
    found: list[int] = []

    def look() -> bool:
        for child in psutil.Process(target.pid).children(recursive=True):
            if child.name().startswith(name):
                found.append(child.pid)
        return bool(found)

    wait_until(look, f"a process {name} under {target.pid}")
    return found[-1]


def test_pid_namespace(version: str, tmp_path: Path) -> None:
    """Thread ids inside are others than outside."""
    command = unshare("--pid", "--fork", "--mount-proc", "--kill-child", str(interpreter(version)), "-c", PROGRAM)
    with started(command) as target:
        judged(descendant(target, "python"), tmp_path)


def test_own_root(tmp_path: Path) -> None:
    """The executable is mounted where only the target sees it; outside, another Python stands under its path."""
    inside = tmp_path / "inside"
    (inside / "usr" / "bin").mkdir(parents=True)
    shutil.copy(interpreter("3.12"), inside / "usr" / "bin" / "python3.14")
    root = interpreter("3.14").parents[2]
    python = inside / "usr" / "bin" / "python3.14"
    shell = f'mount --bind "{root}" "{inside}" && exec "{python}" -c "$0"'
    with started(unshare("--mount", "sh", "-c", shell, PROGRAM)) as target:
        assert python.read_bytes() != Path(f"/proc/{target.pid}/exe").read_bytes(), "the mount is seen from outside"
        profile = judged(target.pid, tmp_path)
        assert profile.mappings[0] == str(python)
        build_ids = {profile.message.string_table[mapping.build_id].decode() for mapping in profile.message.mapping[:1]}
        notes = subprocess.run(["readelf", "-n", f"/proc/{target.pid}/exe"], capture_output=True, text=True, check=True)
        assert f"Build ID: {build_ids.pop()}" in notes.stdout


def test_own_root_by_chroot(tmp_path: Path) -> None:
    """The target's / is another: paths are found through /proc/PID/root."""
    assert os.geteuid() == 0, "chroot needs root: run the tests as root"
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    original = interpreter("3.14").parents[2]
    # The interpreter's loader and library path are absolute: the same path has to be there inside.
    place = root / original.relative_to("/")
    place.parent.mkdir(parents=True)
    place.mkdir()
    shell = f'mount --bind "{original}" "{place}" && exec chroot "{root}" "{interpreter("3.14")}" -c "$0"'
    with started(unshare("--mount", "sh", "-c", shell, PROGRAM)) as target:
        assert Path(f"/proc/{target.pid}/root").readlink() == root
        judged(target.pid, tmp_path)


def copied(version: str, directory: Path) -> Path:
    """A copy of the interpreter's executable that runs from elsewhere."""
    python = directory / "copied"
    shutil.copy(interpreter(version), python)
    return python


def home(version: str) -> dict[str, str]:
    prefix = subprocess.run(
        [interpreter(version), "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True
    )
    return {**os.environ, "PYTHONHOME": prefix.stdout.strip()}


@pytest.mark.parametrize("version", ("3.12", "3.14"))
def test_replaced_executable(version: str, tmp_path: Path) -> None:
    """An upgrade put another file in its place: what runs is what counts, and that is said."""
    python = copied(version, tmp_path)
    output = tmp_path / "output"
    output.mkdir()
    with started([python, "-c", PROGRAM], env=home(version)) as target:
        other = copied("3.9", output)
        other.rename(python)
        profile = judged(target.pid, output)
    assert any("deleted" in comment or "replaced" in comment for comment in profile.comments), profile.comments


@pytest.mark.parametrize("version", ("3.10", "3.14"))
def test_deleted_executable(version: str, tmp_path: Path) -> None:
    python = copied(version, tmp_path)
    output = tmp_path / "output"
    output.mkdir()
    with started([python, "-c", PROGRAM], env=home(version)) as target:
        python.unlink()
        judged(target.pid, output)


@pytest.mark.parametrize("version", ("3.8", "3.10", "3.11", "3.12", "3.13"))
def test_stripped_shared_library(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    mapped = subprocess.run(
        [python, "-c", "print(open('/proc/self/maps').read())"], capture_output=True, text=True, check=True
    )
    libraries = {line.split()[-1] for line in mapped.stdout.splitlines() if "libpython" in line}
    assert libraries, f"CPython {version} here is no shared build"
    library = Path(libraries.pop())
    stripped = tmp_path / library.name
    subprocess.run(["strip", "--strip-all", str(library), "-o", str(stripped)], check=True)
    with started([python, "-c", PROGRAM], env={**os.environ, "LD_PRELOAD": str(stripped)}) as target:
        assert str(stripped) in Path(f"/proc/{target.pid}/maps").read_text()
        judged(target.pid, tmp_path)


def test_stripped_static_executable(tmp_path: Path) -> None:
    """No symbol is left, the dynamic one renamed away: the section, or a scan, finds the runtime."""
    python = copied("3.14", tmp_path)
    raw = python.read_bytes()
    assert raw.count(b"\0_PyRuntime\0") >= 1
    python.write_bytes(raw.replace(b"\0_PyRuntime\0", b"\0_QyRuntime\0"))
    with started([python, "-c", PROGRAM], env=home("3.14")) as target:
        judged(target.pid, tmp_path)


def test_odd_names(tmp_path: Path) -> None:
    """Names with spaces, controls and other scripts: whole in the profile, tame on a terminal."""
    directory = tmp_path / "a b\x1b[31m"
    directory.mkdir()
    source = directory / "ünï\ncode.py"
    source.write_text(
        "import sys, threading\n"
        "def фу(): sys.stdin.read()\n"
        "thread = threading.Thread(target=фу)\n"
        "open('/proc/self/comm', 'w').write('x\\x1b]0;y)')\n"
        "print('ready', flush=True)\n"
        "thread.start()\n"
    )
    with started([sys.executable, source]) as target:
        recording = cli.attach(target.pid, tmp_path, 1, 100)
        dumped = cli.remoteprof("dump", target.pid)
        named = cli.remoteprof("attach", target.pid, "-d", "300ms", cwd=directory)
    frames = {(frame.name, frame.file) for sample in recording.profile.samples for frame in sample.frames}
    assert ("фу", str(source)) in frames
    assert "\x1b" not in dumped.stdout + recording.result.stderr + named.stderr
    assert "фу" in dumped.stdout
    assert named.status == 0, named.stderr


def test_from_the_midst_of_many_threads(tmp_path: Path) -> None:
    """200 sleeping threads beside a busy one: each is there, and none of them was stopped."""
    source = tmp_path / "many.py"
    source.write_text(
        "import sys, threading\n"
        "event = threading.Event()\n"
        "def asleep(): event.wait()\n"
        "for _ in range(200): threading.Thread(target=asleep, daemon=True).start()\n"
        "def busy():\n"
        "    value = 1\n"
        "    while True: value = (value * 31 + 7) & 0xFFFFF\n"
        "print('ready', flush=True)\n"
        "busy()\n"
    )
    with started([interpreter("3.12"), source]) as target:
        recording = cli.attach(target.pid, tmp_path, 3, 100)
    assert stats.faults(recording.stats, recording.profile) == []
    threads = {s.labels["thread_id"] for s in recording.profile.samples if "asleep" in s.names()}
    assert len(threads) == 200
    assert recording.stats["pause_us"]["count"] <= recording.stats["ticks"] * 1.5
