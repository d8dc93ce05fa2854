"""Commands, over a native module that makes its samples up."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.targets import wait_until

from remoteprof.cli import cli
from remoteprof.cli.launch import CannotRun, find_program
from remoteprof.profile import Profile


def lines(text):
    return text.splitlines()


def test_attach_writes_a_profile_and_tells_of_it(remoteprof, target, tmp_path):
    code, out, err = remoteprof("attach", target.pid, "-d", "0.1", "--stats", "stats.json")
    assert (code, out) == (0, "")
    name = f"sleep-{target.pid}.pb.gz"
    assert sorted(one.name for one in tmp_path.iterdir()) == [name, "stats.json"]
    profile = Profile.load(tmp_path / name)
    assert profile.total("samples") == 350
    assert profile.mappings[0].file.endswith("sleep")
    assert profile.comments[0] == f"command: remoteprof attach {target.pid} -d 0.1 --stats stats.json"
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert stats["pid"] == target.pid
    assert stats["output_bytes"] == (tmp_path / name).stat().st_size
    assert (
        min(stats[key] for key in ("profiler_cpu_ns", "profiler_peak_rss_bytes", "first_sample_ms", "attached_ms")) > 0
    )
    assert lines(err)[-1] == f"open it: go tool pprof -http=: {name}"
    assert "100.0 %   1.50 s  work (/app/work.py:10)" in err
    assert "\x1b" not in err
    assert target.poll() is None


def test_quiet_is_silent(remoteprof, target):
    assert remoteprof("attach", target.pid, "-d", "0.1", "-q") == (0, "", "")


def test_the_profile_on_stdout_is_alone_there(start, target, tmp_path):
    with (tmp_path / "out").open("wb") as out:
        process = start("attach", target.pid, "-d", "0.1", "-o", "-", stdout=out)
        _, err = process.communicate()
    assert process.returncode == 0
    assert Profile.load(tmp_path / "out").total("samples") == 350
    assert "open it: " in lines(err)[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_recording_and_the_profile_is_written(start, target, tmp_path, number):
    process = start("attach", target.pid, "-d", "1h")
    status = Path(f"/proc/{process.pid}/status")
    # The last that a recording catches; Python itself catches SIGINT alone.
    caught = re.compile("SigCgt:\t(.*)")
    wait_until(
        lambda: int(caught.search(status.read_text())[1], 16) >> (signal.SIGHUP - 1) & 1, "a recording that catches"
    )
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, [one.suffix for one in tmp_path.iterdir()]) == (0, [".gz"])
    assert "Traceback" not in err


def test_a_terminal_gets_progress_and_no_profile(start, target):
    ours, theirs = pty.openpty()
    process = start("attach", target.pid, "-d", "1.2", stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:
            break
    os.close(ours)
    assert process.wait() == 0
    assert b"s left" in shown and b"samples/s" in shown and "pause p99 12 µs".encode() in shown
    assert b"open it: " in shown
    ours, theirs = pty.openpty()
    process = start("attach", target.pid, "-o", "-", stdout=theirs)
    _, err = process.communicate()
    os.close(ours), os.close(theirs)
    assert process.returncode == 2
    assert lines(err)[0] == "error: a profile is not written to a terminal"


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["attach", "999999"], 3, "no process 999999"),
        (["attach", "99999999999999999999"], 3, "no process 99999999999999999999"),
        (["dump", "999999"], 3, "no process"),
        (["modules", "999999"], 3, "no process"),
        (["attach", "abc"], 2, "'abc' is not a process id"),
        (["attach", "0"], 2, "'0' is not a process id"),
        (["attach", "-5"], 2, "No such option"),
        (["attach"], 2, "Missing argument"),
        (["attach", "1", "-r", "0"], 2, "'0' is not a rate"),
        (["attach", "1", "-r", "nan"], 2, "'nan' is not a rate"),
        (["attach", "1", "-r", "x"], 2, "'x' is not a number"),
        (["attach", "1", "-d", "-1"], 2, "'-1' is not a duration"),
        (["attach", "1", "--max-pause", "0"], 2, "not a possible duration"),
        (["attach", "1", "-f", "xml"], 2, "unknown format 'xml'"),
        (["attach", "1", "-o", "/nowhere/x"], 1, "cannot write /nowhere/x: No such file or directory"),
        (["attach", "1", "--stats", "/nowhere/x"], 1, "cannot write /nowhere/x"),
        (["run", "--", "no-such-program"], 127, "cannot run no-such-program: not found"),
        (["run", "--", "/etc/passwd"], 126, "cannot run /etc/passwd: not an executable file"),
        (["run"], 2, "Missing argument"),
        (["nonsense"], 2, "No such command"),
    ],
)
def test_bad_input_is_two_clear_lines(remoteprof, tmp_path, arguments, code, message):
    result, out, err = remoteprof(*arguments)
    assert (result, out) == (code, "")
    first, second = lines(err)
    assert first.startswith("error: ") and message in first
    assert second.startswith("hint: ")
    assert not list(tmp_path.iterdir())


def test_no_permission(remoteprof, target):
    assert remoteprof("attach", target.pid, fake="refuses") == (4, "", "error: not permitted\nhint: ask\n")


def test_the_sampler_dying_is_an_error_of_attach(remoteprof, target, tmp_path):
    code, _, err = remoteprof("attach", target.pid, fake="dies")
    assert (code, lines(err)[0]) == (1, "error: the sampler process was ended by SIGKILL")
    assert not list(tmp_path.iterdir())


def test_a_full_device_is_an_error(remoteprof, target):
    code, _, err = remoteprof("attach", target.pid, "-d", "0.1", "-o", "/dev/full")
    assert (code, lines(err)[0]) == (1, "error: cannot write /dev/full: No space left on device")


def test_closed_standard_streams(start, target, tmp_path):
    process = start("dump", target.pid, stdout=None, preexec_fn=lambda: os.close(1))
    _, err = process.communicate()
    assert (process.returncode, lines(err)[0]) == (1, "error: cannot write stdout: Bad file descriptor")
    with Path("/dev/full").open("w") as full:
        process = start("dump", target.pid, stdout=full)
        _, err = process.communicate()
    assert (process.returncode, lines(err)[0]) == (1, "error: cannot write stdout: No space left on device")
    assert len(lines(err)) == 2
    process = start("attach", target.pid, "-d", "0.1", stderr=None, preexec_fn=lambda: os.close(2))
    process.communicate()
    assert process.returncode == 0


def test_dump(remoteprof, target):
    code, out, err = remoteprof("dump", target.pid)
    assert (code, err) == (0, "")
    assert lines(out)[:3] == [
        f"thread {target.pid} 'MainThread': running, holds the GIL",
        "    work (/app/work.py:12)",
        "    main (/app/main.py:3)",
    ]
    assert "sleepy\\x1b[31m" in out
    code, out, _ = remoteprof("dump", target.pid, "--json")
    assert [stack["name"] for stack in json.loads(out)] == ["MainThread", "worker"]


def test_modules(remoteprof, target):
    code, out, err = remoteprof("modules", target.pid)
    assert (code, err) == (0, "")
    start, end, offset, build_id, path = lines(out)[0].split(" ", 4)
    assert int(start, 16) < int(end, 16) and int(offset, 16) >= 0 and bytes.fromhex(build_id) and path.endswith("sleep")
    _, out, _ = remoteprof("modules", target.pid, "--json")
    facts = ["unwind_tables", "symbol_tables", "debug_info", "debug_file", "unused"]
    assert list(json.loads(out)[0]) == ["start", "end", "offset", "path", "build_id", *facts]


@pytest.mark.parametrize("script, code", [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)])
@pytest.mark.parametrize("fake", ["", "refuses", "not-python", "dies"])
def test_run_passes_the_status_on_whatever_becomes_of_the_recording(remoteprof, tmp_path, script, code, fake):
    result, out, err = remoteprof("run", "-o", "x.pb.gz", "--", "sh", "-c", f"echo out; sleep 0.3; {script}", fake=fake)
    assert (result, out) == (code, "out\n")
    assert (tmp_path / "x.pb.gz").exists() == (fake == "")
    assert ("warning: not profiled: " in err) == (fake != "")
    assert "Traceback" not in err


@pytest.mark.parametrize("fake, code", [("refuses", 4), ("not-python", 1), ("dies", 1)])
def test_run_strict(remoteprof, fake, code):
    result, _, err = remoteprof("run", "--strict", "--", "sleep", "0.3", fake=fake)
    assert result == code
    assert lines(err)[0].startswith(("error: ", "warning: not profiled: "))


def test_a_duration_ends_the_recording_of_run_and_not_cmd(start, tmp_path):
    process = start(
        "run", "-d", "0.1", "-o", "x.pb.gz", "--", "sh", "-c", "read line; echo $line; exit 3", stdin=subprocess.PIPE
    )
    wait_until((tmp_path / "x.pb.gz").exists, "a profile")
    out, err = process.communicate("more\n")
    assert (process.returncode, out) == (3, "more\n")
    assert "open it: " in lines(err)[-1]


def test_cmd_gets_its_environment_and_descriptors_unchanged(start, tmp_path):
    read, write = os.pipe()
    os.write(write, b"through")
    environment = {**os.environ, "LC_CTYPE": "C", "FAKE": ""}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    environment.pop("LC_ALL", None)
    fake = Path(__file__).parent / "fake" / "_native.py"
    expected = subprocess.run(["env", "-0"], env=environment, capture_output=True, check=True).stdout
    result = subprocess.run(
        [sys.executable, fake, "run", "-q", "--", "sh", "-c", f"env -0; head -c 7 /dev/fd/{read}"],
        env=environment,
        pass_fds=[read],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    os.close(read), os.close(write)
    made = {b"_", b"PWD", b"OLDPWD", b"SHLVL"}
    content, through = result.stdout.rsplit(b"\0", 1)
    assert through == b"through"
    assert {entry for entry in content.split(b"\0") if entry.split(b"=")[0] not in made} == {
        entry for entry in expected.split(b"\0") if entry and entry.split(b"=")[0] not in made
    }


def test_run_forwards_sigterm_and_lives_on_after_ctrl_c(start, tmp_path):
    script = 'trap "echo term; exit 5" TERM; trap "echo int" INT; echo ready; while :; do sleep 0.05; done'
    process = start("run", "-q", "-o", "x.pb.gz", "--", "sh", "-c", script, start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.stdout.readline() == "int\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate()[0] == "term\n"
    assert process.returncode == 5
    assert (tmp_path / "x.pb.gz").exists()


def test_programs_are_found_as_by_a_shell(tmp_path):
    (tmp_path / "plain").touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "tool").touch(mode=0o755)
    environment = [b"X=1", b"PATH=/nowhere:" + os.fsencode(tmp_path) + b":" + os.fsencode(tmp_path / "a")]
    assert find_program(b"tool", environment) == os.fsencode(tmp_path / "a" / "tool")
    for program, code in ((b"plain", 126), (b"a", 126), (b"none", 127), (b"", 127), (b"/nowhere/x", 127)):
        with pytest.raises(CannotRun) as caught:
            find_program(program, environment)
        assert caught.value.exit_code == code


def test_help_names_every_command():
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    for name in ("attach", "run", "dump", "modules"):
        assert name in result.output
        assert CliRunner().invoke(cli, [name, "--help"]).exit_code == 0
