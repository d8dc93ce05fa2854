"""Bad input: the exit codes of the contract, an error and a hint, never a traceback, never harm."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import cli, pprof
from support.targets import Running, program, started, wait_until

PF_KTHREAD = 0x00200000

# A whole program for 32-bit x86: an ELF header, one program header, and pause() in a loop.
CODE32 = bytes.fromhex("b81d000000cd80ebf7")
ELF32 = (
    b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
    + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, 0x08048054, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    + struct.pack("<IIIIIIII", 1, 0, 0x08048000, 0x08048000, 84 + len(CODE32), 84 + len(CODE32), 5, 4096)
    + CODE32
)


@pytest.fixture
def idle() -> Iterator[Running]:
    with started(program("idle.py")) as target:
        yield target


def unused_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


@pytest.mark.parametrize("command", ("attach", "dump", "modules"))
def test_no_such_process(command: str, tmp_path: Path) -> None:
    cli.remoteprof(command, unused_pid(), cwd=tmp_path).failed_with(3, "no")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ("attach", "dump", "modules"))
@pytest.mark.parametrize("pid", ("abc", "-5", "0", "1.5", "", "99999999999999999999", "12 34"))
def test_a_pid_that_is_none(command: str, pid: str, tmp_path: Path) -> None:
    result = cli.remoteprof(command, "--", pid, cwd=tmp_path)
    assert result.status in (2, 3), result.stderr
    assert "Traceback" not in result.stderr and "rror:" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    (
        ("-r", "0"),
        ("-r", "-1"),
        ("-r", "many"),
        ("-r", "nan"),
        ("-r", "inf"),
        ("-r", "1e12"),
        ("-d", "-1"),
        ("-d", "soon"),
        ("-d", "0"),
        ("-d", "nan"),
        ("-d", "1e400"),
        ("--max-pause", "-1ms"),
        ("--format", "png"),
        ("--no-such-option",),
        ("extra",),
    ),
    ids=" ".join,
)
def test_wrong_options(options: tuple[str, ...], idle: Running, tmp_path: Path) -> None:
    cli.remoteprof("attach", idle.pid, *options, cwd=tmp_path).failed_with(2)
    assert list(tmp_path.iterdir()) == []


def test_no_command_and_help(tmp_path: Path) -> None:
    assert cli.remoteprof("run", cwd=tmp_path).status == 2
    assert cli.remoteprof("no-such-command", cwd=tmp_path).status == 2
    shown = cli.remoteprof("--help", cwd=tmp_path)
    assert shown.status == 0
    for command in ("attach", "run", "dump", "modules"):
        assert command in shown.stdout


def test_not_a_python(tmp_path: Path) -> None:
    with started(["cat"], ready="") as target:
        for option in ("--no-native", "--nonblocking"):
            cli.remoteprof("attach", target.pid, "-d", "1", option, cwd=tmp_path).failed_with(5, "hint", "python")
        target.send("still here\n")
        assert target.line() == "still here"


def test_zombie(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: "Z" in Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2][:3], "a zombie")
        cli.remoteprof("attach", child.pid, "-d", "1", cwd=tmp_path).failed_with(5, "zombie")
    finally:
        child.wait()


def test_kernel_thread(tmp_path: Path) -> None:
    found = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[6]) & PF_KTHREAD:
                    found = int(entry.name)
                    break
    assert found, "no kernel thread can be seen here (a PID namespace?): this test needs one"
    cli.remoteprof("attach", found, "-d", "1", cwd=tmp_path).failed_with(5, "kernel thread")


def test_32_bit(tmp_path: Path) -> None:
    path = tmp_path / "narrow"
    path.write_bytes(ELF32)
    path.chmod(0o755)
    output = tmp_path / "output"
    output.mkdir()
    with started([path], ready="") as target:
        wait_until(lambda: Path(f"/proc/{target.pid}/exe").resolve() == path, "the 32-bit program")
        cli.remoteprof("attach", target.pid, "-d", "1", cwd=output).failed_with(5, "32-bit")
        assert target.process.poll() is None


def test_traced_by_another(idle: Running, tmp_path: Path) -> None:
    with started(program("tracer.py", str(idle.pid))) as tracer:
        result = cli.remoteprof("attach", idle.pid, "-d", "1", cwd=tmp_path)
        result.failed_with(4, str(tracer.pid), "python")
        assert idle.status()["TracerPid"] == str(tracer.pid)
    assert cli.remoteprof("attach", idle.pid, "-d", "300ms", "-q", cwd=tmp_path).status == 0


@pytest.mark.parametrize("output", ("missing/out.pb.gz", "directory", "/proc/out.pb.gz", "directory/"))
def test_unwritable_output(output: str, idle: Running, tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    cli.remoteprof("attach", idle.pid, "-d", "300ms", "-o", output, cwd=tmp_path).failed_with(1)
    assert list(tmp_path.rglob("*")) == [tmp_path / "directory"]


def test_full_disk(idle: Running, tmp_path: Path) -> None:
    cli.remoteprof("attach", idle.pid, "-d", "300ms", "-o", "/dev/full", cwd=tmp_path).failed_with(1, "space")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [cli.COMMAND, "attach", str(idle.pid), "-d", "300ms", "-o", "-"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    cli.Result(done.returncode, "", done.stderr.decode()).failed_with(1, "space")
    assert list(tmp_path.iterdir()) == []


def test_full_disk_keeps_what_was_there(idle: Running, tmp_path: Path) -> None:
    """A limit on file size breaks the write in the middle: the old file stays, no half one is left."""
    path = tmp_path / "out.pb.gz"
    path.write_bytes(b"what was there")
    shell = f'ulimit -f 0; trap "" XFSZ; exec "{cli.COMMAND}" attach {idle.pid} -d 300ms -o "{path}"'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    cli.Result(done.returncode, done.stdout, done.stderr).failed_with(1)
    assert path.read_bytes() == b"what was there"
    assert list(tmp_path.iterdir()) == [path]


def test_closed_standard_output(idle: Running) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [cli.COMMAND, "attach", str(idle.pid), "-d", "300ms", "-o", "-"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    cli.Result(done.returncode, "", done.stderr.decode()).failed_with(1)
    for command in (["dump", str(idle.pid)], ["attach", str(idle.pid), "-d", "300ms", "-o", "-"]):
        done = subprocess.run(
            ["bash", "-c", 'exec "$0" "$@" >&-', cli.COMMAND, *command], stderr=subprocess.PIPE, check=False
        )
        cli.Result(done.returncode, "", done.stderr.decode()).failed_with(1)


def test_profile_to_a_terminal_is_refused(idle: Running) -> None:
    main, terminal = os.openpty()
    done = subprocess.run(
        [cli.COMMAND, "attach", str(idle.pid), "-d", "300ms", "-o", "-"],
        stdout=terminal,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(terminal)
    os.close(main)
    assert done.returncode in (1, 2)
    assert b"terminal" in done.stderr and b"Traceback" not in done.stderr


def test_itself_and_its_parent(tmp_path: Path) -> None:
    """A shell that records itself: no Python, but a program all the same."""
    for options, status in (("--no-native", 5), ("-q", 0)):
        done = subprocess.run(
            ["bash", "-c", f'"{cli.COMMAND}" attach $$ -d 300ms -o out.pb.gz {options}; exit $?'],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert "[syscall: wait4]" in pprof.load(tmp_path / "out.pb.gz").functions()


def test_unknown_runtime_of_a_python_name(tmp_path: Path) -> None:
    """A program that is only called python is none."""
    path = tmp_path / "python3"
    path.write_bytes(Path("/bin/cat").resolve().read_bytes())
    path.chmod(0o755)
    output = tmp_path / "output"
    output.mkdir()
    with started([path], ready="") as target:
        cli.remoteprof("attach", target.pid, "-d", "1", "--no-native", cwd=output).failed_with(5)


def test_host_without_descriptors(idle: Running, tmp_path: Path) -> None:
    """Few open files allowed: it works or says why."""
    shell = f'ulimit -n 24; exec "{cli.COMMAND}" attach {idle.pid} -d 300ms -q -o out.pb.gz'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
