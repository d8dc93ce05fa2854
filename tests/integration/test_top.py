"""top, in a real terminal and without one: what it shows, its keys, its sizes, and how it leaves the terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from support import cli, pprof
from support.targets import PATIENCE, Running, program, started, thread_states, wait_until
from support.terminal import Terminal, terminal

from remoteprof.live import Live
from remoteprof.session import Options


@pytest.fixture
def target() -> Iterator[Running]:
    """A program with a known split."""
    with started(program("shares.py", version="3.12")) as running:
        yield running


@pytest.fixture
def screen(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    """A terminal whose screens are kept under the name of the test."""
    with terminal(re.sub(r"\W+", "_", request.node.name)) as one:
        yield one


def begin(screen: Terminal, pid: int, width: int = 80, height: int = 24, *options: str, **more: object) -> list[str]:
    """top on a process, from its first window on, with Python functions alone: what the C library adds to them differs
    from machine to machine."""
    environment = more.pop("environment", ())
    assert isinstance(environment, tuple)
    screen.start([cli.COMMAND, "top", pid, "--no-native", "-d", "400ms", *options], width, height, environment)
    return screen.shows("FUNCTION")


def functions(lines: list[str]) -> list[str]:
    """The names in the table of functions, in its order."""
    begin = next(index for index, line in enumerate(lines) if "FUNCTION" in line)
    end = next((index for index, line in enumerate(lines) if "THREAD" in line), len(lines) - 1)
    rows = (re.match(r"[> ] *[0-9.]+[0-9. ]*  (\S+)", line) for line in lines[begin + 1 : end])
    return [row[1] for row in rows if row]


def ended(screen: Terminal, status: int = 0) -> list[str]:
    """It has ended with this exit code, and the terminal is as it was."""
    lines = screen.shows("ended: ")
    # The line after it has what the shell was left with.
    lines = screen.wait(lambda found: any("echo" in line for line in found), "the terminal's settings")
    assert f"ended: {status}" in lines
    assert "isig icanon echo" in lines, lines
    assert not screen.alternate() and screen.cursor_shown()
    assert not any("Traceback" in line for line in lines)
    return lines


def top_process(screen: Terminal) -> psutil.Process:
    (process,) = [one for one in psutil.Process(screen.pid()).children() if "top" in one.cmdline()]
    return process


def test_the_heaviest_function_is_on_top(screen: Terminal, target: Running) -> None:
    lines = begin(screen, target.pid)
    assert len(lines) == 24 and screen.alternate() and not screen.cursor_shown()
    assert functions(lines)[:2] == ["heavy", "light"]
    assert "CPython 3.12" in lines[0] and "3 threads" in lines[0]
    assert lines[1].split() == ["OWN", "TOTAL", "WALL", "GIL", "FUNCTION"]
    assert lines[2].startswith(">") and "heavy (shares.py)" in lines[2]
    assert re.search(rf"runn(ing|able) +{target.pid} ", "\n".join(lines))
    assert any("sleeping" in line and "sleeper" in line for line in lines)
    assert lines[-1].startswith("Enter stacks")
    screen.keys("q")
    ended(screen)
    assert set(thread_states(target.pid).values()) <= {"R", "S"}, "nothing is stopped, nothing traced"


def test_keys(screen: Terminal, target: Running, tmp_path: Path) -> None:
    path = tmp_path / "saved.pb.gz"
    begin(screen, target.pid, 80, 24, "-o", str(path))
    # By total CPU time what calls stands above what works.
    screen.keys("t")
    screen.wait(lambda lines: functions(lines)[:2] in (["<module>", "main"], ["main", "<module>"]), "by total")
    screen.keys("o")
    screen.wait(lambda lines: functions(lines)[0] == "heavy", "by own")
    screen.keys("w")
    # Three threads stand in their functions all the time.
    screen.wait(lambda lines: "by wall" in lines[0] and functions(lines)[0] != "heavy", "by wall")
    screen.keys("g")
    screen.wait(lambda lines: "by gil" in lines[0] and "main" in functions(lines)[:2], "by gil")
    screen.keys("o", "j")
    screen.wait(lambda lines: lines[3].startswith(">") and "light" in lines[3], "the bar on the second")
    screen.keys("Enter")
    lines = screen.shows("STACKS THROUGH light")
    shown = [line.split()[1 + line.startswith(">")] for line in lines[2:] if re.match(r"[> ] +[0-9.]+  ", line)]
    assert shown[:3] == ["<module>", "main", "light"] and "heavy" not in shown
    screen.keys("Escape")
    screen.shows("FUNCTION")
    screen.keys("/", "h", "e", "a", "x", "BSpace")
    screen.wait(lambda lines: lines[-1] == "/hea_" and functions(lines) == ["heavy"], "the filter")
    screen.keys("Enter")
    screen.wait(lambda lines: "/hea" in lines[0] and functions(lines) == ["heavy"], "the filter, typed")
    screen.keys("Escape")
    screen.wait(lambda lines: functions(lines)[:2] == ["heavy", "light"], "no filter")
    screen.keys("?")
    screen.shows("the merged stacks through it")
    screen.keys("x")
    screen.shows("FUNCTION")
    screen.keys("s")
    screen.shows("saved: ")
    screen.keys("q")
    ended(screen)
    profile = pprof.load(path)
    assert any("heavy" in sample.names() for sample in profile.samples)


def test_pause_leaves_the_process_alone(screen: Terminal, target: Running) -> None:
    begin(screen, target.pid)
    screen.keys("p")
    before = screen.wait(lambda lines: lines[0].startswith("paused"), "paused")
    tops = psutil.Process(screen.pid()).children(recursive=True)
    sampler = next(one for one in tops if "sampler_main" in " ".join(one.cmdline()))

    def at_rest() -> bool:
        """The sampler has not woken for a while."""
        count = sampler.num_ctx_switches().voluntary
        return not wait_for_more(sampler, count)

    wait_until(at_rest, "a sampler at rest")
    assert screen.screen() == before
    screen.keys("p")
    screen.wait(lambda lines: not lines[0].startswith("paused") and lines != before, "that it goes on")
    screen.keys("q")
    ended(screen)


def wait_for_more(process: psutil.Process, count: int) -> bool:
    """Whether a process wakes more often than this, asked many times."""
    import time

    for _ in range(50):
        time.sleep(0.01)
        if process.num_ctx_switches().voluntary > count:
            return True
    return False


def whole(lines: list[str], height: int) -> bool:
    """Whether this is a page of that many lines, drawn to its end."""
    return (
        len(lines) == height
        and lines[0].startswith("python3.12")
        and lines[1].startswith("     OWN  TOTAL")
        and lines[-1].startswith("Enter stacks")
    )


def test_sizes(screen: Terminal, target: Running) -> None:
    lines = begin(screen, target.pid, 40, 10)
    assert whole(lines, 10) and max(map(len, lines)) <= 40
    assert lines[1].split() == ["OWN", "TOTAL", "FUNCTION"]
    assert functions(lines)[:2] == ["heavy", "light"]
    assert "python3.12" in lines[-2]
    screen.resize(80, 24)
    lines = screen.wait(lambda found: whole(found, 24) and "WALL" in found[1], "80x24")
    assert functions(lines)[:2] == ["heavy", "light"]
    screen.resize(20, 4)
    lines = screen.wait(lambda found: whole(found, 4), "20x4")
    assert lines[2].startswith(">") and lines[2].endswith("  hea")
    for size in ((3, 2), (1, 1), (200, 60)):
        screen.resize(*size)
    lines = screen.wait(lambda found: whole(found, 60) and "WALL" in found[1], "200x60")
    assert "/tests/targets/shares.py)" in lines[2]
    screen.keys("q")
    ended(screen)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals(screen: Terminal, target: Running, number: signal.Signals) -> None:
    begin(screen, target.pid)
    if number == signal.SIGINT:
        screen.keys("C-c")
    else:
        top_process(screen).send_signal(number)
    ended(screen)


def test_the_end_of_the_process(screen: Terminal, target: Running) -> None:
    begin(screen, target.pid)
    target.process.kill()
    target.process.wait()
    assert f"process {target.pid} has ended" in ended(screen)


def test_a_sampler_that_dies(screen: Terminal, target: Running) -> None:
    begin(screen, target.pid)
    for one in psutil.Process(screen.pid()).children(recursive=True):
        if "sampler_main" in " ".join(one.cmdline()):
            one.kill()
    assert any("the sampler process was ended by SIGKILL" in line for line in ended(screen, 1))
    wait_until(lambda: set(thread_states(target.pid).values()) <= {"R", "S"}, "that the target goes on")


def test_suspended_and_continued(screen: Terminal, target: Running) -> None:
    screen.tmux("new-session", "-d", "-x", 80, "-y", 24, "bash", "--norc", "-i")
    screen.keys(f"{cli.COMMAND} top {target.pid} --no-native", "Enter")
    screen.shows("FUNCTION")
    screen.keys("C-z")
    screen.shows("Stopped")
    wait_until(lambda: not screen.alternate() and screen.cursor_shown(), "the shell's screen")
    screen.keys("fg", "Enter")
    wait_until(screen.alternate, "its own screen")
    screen.shows("FUNCTION")
    screen.keys("q")
    wait_until(lambda: not screen.alternate() and screen.cursor_shown(), "the shell's screen again")


def test_no_such_process_in_a_terminal(screen: Terminal) -> None:
    screen.start([cli.COMMAND, "top", 2**22 - 3], 80, 24)
    assert any("error: no process" in line for line in ended(screen, 3))


def test_colours(screen: Terminal, target: Running) -> None:
    """Styles only, and with NO_COLOR no colours; a dumb terminal gets plain frames."""
    begin(screen, target.pid, 80, 24, environment=("NO_COLOR=1",))
    shown = "\n".join(screen.screen(escapes=True))
    assert "\x1b[7m" in shown, "the headings stand out"
    assert not re.search(r"\x1b\[[0-9;]*\b(3[0-7]|9[0-7]|4[0-7])m", shown), "no colours"
    screen.keys("q")
    ended(screen)


def test_a_dumb_terminal(screen: Terminal, target: Running) -> None:
    begin(screen, target.pid, 80, 24, environment=("TERM=dumb",))
    assert not screen.alternate() and "\x1b" not in "\n".join(screen.screen(escapes=True))
    screen.keys("C-c")
    ended(screen)


def test_once(version: str) -> None:
    with started(program("shares.py", version=version)) as target:
        result = cli.remoteprof("top", target.pid, "--once", "--no-native", "-d", "500ms")
        assert (result.status, result.stderr) == (0, "")
        assert "\x1b" not in result.stdout
        lines = result.stdout.splitlines()
        assert f"CPython {version}" in lines[0]
        assert functions(lines)[:2] == ["heavy", "light"]
        assert not any(line.startswith(">") for line in lines)
        assert "/tests/targets/shares.py)" in lines[2]
        assert target.finish() == ""


def test_once_in_a_terminal_leaves_its_frame_there(screen: Terminal, target: Running) -> None:
    screen.start([cli.COMMAND, "top", target.pid, "--once", "--no-native"], 80, 24)
    lines = ended(screen)
    assert functions(lines)[:2] == ["heavy", "light"]


def test_children() -> None:
    with started(program("shares.py", "--children", version="3.12")) as target:
        result = cli.remoteprof("top", target.pid, "--once", "--children", "-d", "1s")
        assert result.status == 0, result.stderr
        names = result.stdout
        assert " in_child (" in names and " heavy (" in names
        alone = cli.remoteprof("top", target.pid, "--once", "-d", "300ms")
        assert alone.status == 0 and " in_child (" not in alone.stdout and " heavy (" in alone.stdout
        assert target.finish() == ""


def test_without_a_terminal_a_frame_each_time(target: Running) -> None:
    process = cli.begin("top", target.pid, "--no-native", "-d", "200ms")
    assert process.stdout is not None
    frames = 0
    while frames < 3:
        line = process.stdout.readline()
        assert line
        frames += "FUNCTION" in line
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "") and "\x1b" not in out
    # One whose reader goes, and one whose process ends.
    process = cli.begin("top", target.pid, "--no-native", "-d", "200ms")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(PATIENCE) == 1 and "cannot write stdout" in process.stderr.read()
    process.stderr.close()
    process = cli.begin("top", target.pid, "--no-native", "-d", "200ms")
    assert process.stdout is not None
    process.stdout.readline()
    target.process.kill()
    target.process.wait()
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, f"process {target.pid} has ended\n")


def test_bad_input() -> None:
    cli.remoteprof("top", 2**22 - 3, "--once").failed_with(3, "no process")
    cli.remoteprof("top").failed_with(2, "PID")
    cli.remoteprof("top", os.getpid(), "-r", "0").failed_with(2, "rate")
    cli.remoteprof("top", "--once", "--name", "^no-such-name$").failed_with(3, "no process matches")
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    cli.remoteprof("top", zombie.pid, "--once").failed_with(5, "zombie")
    zombie.wait()


def test_windows_without_a_gap() -> None:
    """Each begins where the one before ended, unless recording was paused in between."""
    with started(program("split.py")) as target:
        live = Live(target.pid, Options(rate=1000, duration_ns=50_000_000), "test")
        try:
            taken = [live.take().profile for _ in range(6)]
            live.pause(True)
            taken.append(live.take().profile)
            live.pause(False)
            after = live.take().profile
        finally:
            live.close()
    for before, profile in pairwise(taken):
        assert profile.time_ns == before.time_ns + before.duration_ns
        assert profile.duration_ns == profile.stats["duration_ns"] > 0
    assert after.time_ns > taken[-1].time_ns + taken[-1].duration_ns


def test_threads_that_had_not_stopped_when_recording_was_paused(waits: Path) -> None:
    """A hundred threads that want one core: what is recorded next takes over the stops of what was before."""
    command = program("threads.py", str(waits), "0", "100")
    core = min(os.sched_getaffinity(0))
    with started(command, preexec_fn=lambda: os.sched_setaffinity(0, {core})) as target:
        live = Live(target.pid, Options(rate=200, duration_ns=50_000_000), "test")
        late = 0
        try:
            for _ in range(15):
                live.pause(False)
                live.take()
                live.pause(True)
                profile = live.take().profile
                names = {function.name for function in profile.functions()}
                assert "[unreadable: traced by another]" not in names
                late += "[unreadable: did not stop before the end]" in names
        finally:
            live.close()
        assert late, "no stop was late: this test shows nothing"
        states = thread_states(target.pid)
        assert len(states) == 101 and set(states.values()) <= {"R", "S"}, states
