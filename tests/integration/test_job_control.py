"""`run` in a terminal: Ctrl-C and Ctrl-Z do to CMD what they would do to it alone."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import psutil
from support import cli, pprof, stats
from support.recorder import woken
from support.shell import INTERRUPT, SUSPEND, Terminal, shell
from support.targets import gone, proc_status, thread_states, wait_until

# Busy until it was interrupted as often as its argument says; its status is then 7.
SOURCE = """import os, signal, sys
seen = 0
def interrupted(number, frame):
    global seen
    seen += 1
    print(f"interrupted {seen}", flush=True)
    if seen == int(sys.argv[1]):
        sys.exit(7)
signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(8))
print(f"started {os.getpid()} .", flush=True)
value = 1
while True:
    value = value * 31 % 65521
"""


def begin(terminal: Terminal, directory: Path, times: int, *options: str) -> int:
    """Runs the program under remoteprof; its pid."""
    source = directory / "busy.py"
    source.write_text(SOURCE)
    command = [cli.COMMAND, "run", "-o", "app.pb.gz", "--stats", "stats.json", "-r", "200", *options, "--"]
    terminal.type(f"{' '.join(map(str, [*command, sys.executable, '-S', source, times]))}; echo status $? .\n")
    terminal.wait_for("started ")
    return int(terminal.wait_for(" ."))


def sampled(supervisor: int) -> None:
    """Wait until the sampler has ticked some times from now."""
    before = woken(supervisor)
    wait_until(lambda: woken(supervisor) > before + 50, "a sampler at work")


def test_ctrl_c_is_for_the_command(tmp_path: Path) -> None:
    """One that goes on after it is recorded on; one that ends has its profile, and its status."""
    with shell(tmp_path) as terminal:
        supervisor = psutil.Process(begin(terminal, tmp_path, 1)).ppid()
        sampled(supervisor)
        terminal.type(INTERRUPT)
        terminal.wait_for("interrupted 1")
        assert "not profiled" not in terminal.wait_for("status 7 .")
    profile = pprof.load(tmp_path / "app.pb.gz")
    assert stats.faults(json.loads((tmp_path / "stats.json").read_text()), profile) == []
    assert profile.total("samples") > 0


def test_the_second_ctrl_c_ends_the_recording_not_the_command(tmp_path: Path) -> None:
    with shell(tmp_path) as terminal:
        pid = begin(terminal, tmp_path, 3)
        [supervisor] = psutil.Process(terminal.pid).children()

        def handled() -> bool:
            """Whether it sleeps again after the signal: the kernel makes one of two that wait to be handled."""
            status = proc_status(supervisor.pid)
            pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
            return status["State"][0] == "S" and not pending >> (signal.SIGINT - 1) & 1

        terminal.type(INTERRUPT)
        terminal.wait_for("interrupted 1")
        wait_until(handled, "a supervisor that has seen the first one")
        assert not (tmp_path / "app.pb.gz").exists()
        terminal.type(INTERRUPT)
        terminal.wait_for("interrupted 2")
        wait_until((tmp_path / "app.pb.gz").exists, "the profile, while the command runs on")
        assert proc_status(pid)["State"][0] in "RS" and proc_status(pid)["TracerPid"] == "0"
        terminal.wait_for("open it")
        terminal.type(INTERRUPT)
        terminal.wait_for("status 7 .")


def test_ctrl_z_stops_the_command_and_fg_goes_on(tmp_path: Path) -> None:
    with shell(tmp_path) as terminal:
        pid = begin(terminal, tmp_path, 1, "--window", "500ms")
        supervisor = next(one for one in psutil.Process(terminal.pid).children() if one.is_running())
        for _ in range(2):
            terminal.type(SUSPEND)
            terminal.wait_for("Stopped")
            wait_until(lambda: thread_states(pid) == {pid: "T"}, "a command that has stopped, and has no tracer")
            wait_until(lambda: supervisor.status() == psutil.STATUS_STOPPED, "a stopped supervisor")
            terminal.type("echo the shell $((6 * 7))\n")
            terminal.wait_for("the shell 42")
            terminal.type("fg\n")
            wait_until(lambda: proc_status(pid)["State"][0] in "RSt", "a command that goes on")
            wait_until(lambda: supervisor.status() != psutil.STATUS_STOPPED, "a supervisor that goes on")
        before = len(list(tmp_path.glob("app-*.pb.gz")))
        wait_until(lambda: len(list(tmp_path.glob("app-*.pb.gz"))) > before + 1, "windows that are written again")
        terminal.type(INTERRUPT)
        terminal.wait_for("interrupted 1")
        # The shell drops what followed the job when it was stopped.
        terminal.wait_for("open it")
        terminal.type("echo status $? .\n")
        terminal.wait_for("status 7 .")
    whole = json.loads((tmp_path / "stats.json").read_text())
    assert stats.faults(whole) == [] and stats.cpu_fault(whole) == ""
    assert sum(window["thread_ticks"] for window in whole["windows"]) == whole["thread_ticks"]


def test_stopped_from_the_start_of_a_background_job(tmp_path: Path) -> None:
    """A background job that reads the terminal is stopped, as it would be alone; brought forward, it reads."""
    with shell(tmp_path) as terminal:
        terminal.type(f"{cli.COMMAND} run -q -o app.pb.gz -- head -n 1 &\n")
        terminal.wait_for("$ ")
        [supervisor] = psutil.Process(terminal.pid).children()
        wait_until(lambda: supervisor.status() == psutil.STATUS_STOPPED, "a job that the terminal has stopped")
        sampler = supervisor.children()[0]
        assert sampler.status() != psutil.STATUS_STOPPED, "what it has stopped is not the sampler"
        terminal.type("fg\n")
        terminal.wait_for("head -n 1")
        sampled(supervisor.pid)
        terminal.type("hello there\n")
        terminal.wait_for("hello there")
        terminal.type("echo status $? .\n")
        terminal.wait_for("status 0 .")
    assert pprof.load(tmp_path / "app.pb.gz").total("samples") > 0


def test_the_second_ctrl_c_gives_up_on_writing(tmp_path: Path) -> None:
    """What would hold a user up is us: CMD has ended, and its status is passed on."""
    os.mkfifo(tmp_path / "nobody-reads")
    with shell(tmp_path) as terminal:
        terminal.type("PS1='status $? .'\n")
        terminal.type(f"{cli.COMMAND} run -o nobody-reads -- sh -c 'echo started $$ .; exit 5'\n")
        terminal.wait_for("started ")
        pid = int(terminal.wait_for(" ."))
        [supervisor] = psutil.Process(terminal.pid).children()
        wait_until(lambda: gone(pid), "the end of the command")

        def waiting(more_than: int) -> bool:
            """Whether it has gone to sleep more often than that, in open(2): nobody reads what it writes."""
            system_call = Path(f"/proc/{supervisor.pid}/syscall").read_text().split()[0]
            return system_call == "257" and supervisor.num_ctx_switches().voluntary > more_than

        wait_until(lambda: waiting(0), "a supervisor that writes")
        slept = supervisor.num_ctx_switches().voluntary
        terminal.type(INTERRUPT)
        wait_until(lambda: waiting(slept), "a supervisor that goes on after the first one")
        terminal.type(INTERRUPT)
        terminal.wait_for("Ctrl-C came twice")
        terminal.wait_for("status 5 .")
