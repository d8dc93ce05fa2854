"""Where bytes go."""

import errno
import os
import stat
from pathlib import Path

import pytest

from remoteprof.errors import OutputError, UsageError
from remoteprof.sinks import FileSink, StandardOutput, open_sink


def hello(stream):
    stream.write(b"hello")


def test_a_file_is_private_and_whole(tmp_path):
    sink = open_sink(str(tmp_path / "x"))
    sink.check()
    assert not list(tmp_path.iterdir())
    assert sink.write(hello) == 5
    assert [one.name for one in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"hello"
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


def test_a_file_that_is_there_is_replaced_only_by_a_whole_one(tmp_path):
    (tmp_path / "x").write_text("before")
    (tmp_path / "link").symlink_to("x")

    def fail(stream):
        hello(stream)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OutputError, match=r"cannot write .*link: No space left on device") as caught:
        FileSink(str(tmp_path / "link")).write(fail)
    assert "make room" in caught.value.hint
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "x"]
    assert (tmp_path / "x").read_text() == "before"
    FileSink(str(tmp_path / "link")).write(hello)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "x").read_text() == "hello"


def test_any_failure_of_the_writer_leaves_nothing(tmp_path):
    def fail(stream):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        FileSink(str(tmp_path / "x")).write(fail)
    assert not list(tmp_path.iterdir())


def test_a_full_device():
    sink = FileSink("/dev/full")
    sink.check()
    with pytest.raises(OutputError, match="No space left on device"):
        sink.write(hello)
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_a_device_is_written_not_replaced():
    assert FileSink("/dev/null").write(hello) == 5
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize(
    "path, message", [("none/x", "No such file"), (".", "Is a directory"), ("file/x", "Not a directory")]
)
def test_an_impossible_path_is_known_before(tmp_path, path, message):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=message) as caught:
        FileSink(str(tmp_path / path)).check()
    assert caught.value.hint


def test_an_unwritable_directory_is_known_before():
    # Where nobody may make a file, root included.
    with pytest.raises(OutputError, match="cannot write"):
        FileSink("/proc/self/x").check()


def test_stdout(capfdbinary):
    assert StandardOutput().write(hello) == 5
    assert capfdbinary.readouterr().out == b"hello"


def test_a_terminal_is_refused(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with pytest.raises(UsageError, match="terminal"):
        open_sink("-").check()


def test_a_missing_stdout(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(OutputError, match="cannot write stdout"):
        open_sink("-").check()
