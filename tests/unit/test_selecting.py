"""Which process is meant: by name, command line, control group and user."""

import contextlib
import os
import pty
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from remoteprof.errors import UsageError
from remoteprof.selecting import Selector


@pytest.fixture
def programs(tmp_path):
    """Starts copies of the shell, which wait: `programs(name, *arguments)` gives a process that is known to run one."""
    started = []

    def begin(name, *arguments):
        folder = tmp_path / "programs"
        folder.mkdir(exist_ok=True)
        path = folder / name
        if not path.exists():
            shutil.copy(shutil.which("sh"), path)
        process = subprocess.Popen([path, "-c", "read line", "1000", *arguments], stdin=subprocess.PIPE)
        started.append(process)
        # Popen returns a little before the arguments can be seen.
        while psutil.Process(process.pid).cmdline()[:1] != [str(path)]:
            assert process.poll() is None
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def pids(**wanted):
    return [process.pid for process in Selector(**wanted).find()]


def test_each_way_and_all_together(programs):
    one, other = programs("choose-one", "1"), programs("choose-other", "2")
    assert pids(name="^choose-one$") == [one.pid]
    assert pids(name="choose-o") == sorted([one.pid, other.pid])
    assert pids(cmdline="choose-o.* 1000 2$") == [other.pid]
    assert pids(name="choose-o", cmdline=" 1$") == [one.pid]
    assert pids(name="choose-one", cmdline=" 2$") == []
    ours = pwd.getpwuid(os.getuid()).pw_name
    assert pids(name="choose-one", user=ours) == pids(name="choose-one", user=str(os.getuid())) == [one.pid]
    assert pids(name="choose-one", user="4000000001") == []


def test_a_long_name_is_whole(programs):
    name = "choose-one-of-a-name-longer-than-the-kernel-keeps"
    process = programs(name)
    assert pids(name=f"^{name}$") == [process.pid]


def test_the_control_group(programs):
    process = programs("choose-one")
    path = Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()[0].split(":", 2)[2]
    assert pids(name="choose-one", cgroup=path) == [process.pid]
    assert pids(name="choose-one", cgroup="/no/such/group") == []
    assert pids(name="choose-one", cgroup="::") == [], "a path is looked at, not the line"


def test_never_itself_nor_those_above():
    """What is looked for stands in the command line of whoever looks, and of the shell that it was told to."""
    code = "from remoteprof.selecting import Selector; print([p.pid for p in Selector(cmdline='find-me-43').find()])"
    script = f'"{sys.executable}" -c "{code}"; true'
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root}, check=True
    )
    assert done.stdout == "[]\n"


def test_no_zombies_and_no_threads_of_the_kernel():
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert process.pid not in pids(name="^true$")
    finally:
        process.wait()
    kernel = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text(errors="replace").rpartition(")")[2].split()[6]) & 0x200000:
                kernel.add(int(path.parent.name))
    assert not set(pids(name=".")) & kernel


@pytest.mark.parametrize("wanted", [{"name": "("}, {"cmdline": "["}, {"user": "no such user"}])
def test_what_no_process_can_have(wanted):
    with pytest.raises(UsageError):
        Selector(**wanted)


@pytest.mark.parametrize("command", ["attach", "dump", "modules"])
def test_commands_take_it(remoteprof, programs, command):
    process = programs(f"choose-{command}", "x\x1b[31my")
    arguments = ["-d", "0.1", "-o", "out.pb.gz"] if command == "attach" else ["--json"]
    code, out, err = remoteprof(command, "--name", f"^choose-{command}$", *arguments)
    assert (code, str(process.pid) in out + err or command in ("attach", "modules")) == (0, True), err
    other = programs(f"choose-{command}", "2")
    code, out, err = remoteprof(command, "--name", f"^choose-{command}$", *arguments)
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert lines[0] == "error: 2 processes match:" and lines[-1].startswith("hint: ")
    assert [line.split()[:2] for line in lines[2:-1]] == [["1", str(process.pid)], ["2", str(other.pid)]]
    assert lines[2].endswith("1000 x\\x1b[31my")
    code, out, err = remoteprof(command, "--name", "^no-such-name$", *arguments)
    assert (code, out, err.splitlines()[0]) == (3, "", "error: no process matches")


def asked(start, answer, *arguments):
    """What a command prints on a terminal where it is given this answer; its exit code."""
    ours, theirs = pty.openpty()
    process = start(*arguments, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):
        while part := os.read(ours, 4096):
            shown += part
            if b"which one" in shown and answer:
                os.write(ours, answer)
                answer = b""
    os.close(ours)
    return process.wait(), shown.decode()


def test_on_a_terminal_it_is_asked_which(start, programs):
    programs("choose-one", "1")
    second = programs("choose-one", "2")
    code, shown = asked(start, b"7\n2\n", "dump", "--cmdline", "choose-one")
    assert code == 0
    assert "which one (1 to 2): " in shown and "7 is not in the range" in shown
    assert f"thread {second.pid} " in shown


def test_not_both_and_not_nothing(remoteprof, target):
    for arguments, words in (
        (["dump", target.pid, "--name", "sleep"], "both a PID and options"),
        (["dump"], "Missing argument 'PID', or one of --name"),
        (["dump", "--name", ""], "an empty text chooses no process"),
        (["dump", "--name", "x", "--cgroup", ""], "an empty text chooses no process"),
        (["dump", "--name", "("], "not a regular expression: '('"),
        (["dump", "--user", "no such user"], "no user 'no such user'"),
    ):
        code, out, err = remoteprof(*arguments)
        assert (code, out) == (2, "") and words in err and "hint: " in err
