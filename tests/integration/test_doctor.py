"""doctor: what it says of this machine and of real processes."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

from support import cli
from support.targets import interpreter, program, started, thread_states, wait_until

Findings = dict[str, dict[str, str]]


def doctor(*arguments: object, status: int = 0) -> tuple[Findings, Findings]:
    """What it finds of the machine and of the process, by name."""
    done = cli.remoteprof("doctor", *arguments, "--json")
    assert done.status == status, done.stderr
    assert done.stderr == ""
    told = json.loads(done.stdout)
    machine, process = ({one["name"]: one for one in told.get(key, [])} for key in ("machine", "process"))
    for one in [*machine.values(), *process.values()]:
        assert one["status"] in ("ok", "limit") and one["fact"]
    return machine, process


def test_the_machine() -> None:
    machine, process = doctor()
    assert process == {}
    assert {"kernel", "ptrace scope", "capabilities", "seccomp", "namespaces", "descriptors"} < machine.keys()
    assert machine["kernel"]["fact"].endswith("x86_64")
    assert machine["trial"]["status"] == "ok"
    text = cli.remoteprof("doctor")
    assert text.status == 0 and "ok     kernel" in text.stdout and "\x1b" not in text.stdout


def test_a_python(version: str) -> None:
    with started(program("idle.py", version=version)) as target:
        _, process = doctor(target.pid)
        assert target.finish() == ""
    assert f"CPython {version}" in process["runtime"]["fact"]
    assert process["access"]["fact"].startswith("2 threads")
    assert process["stacks"]["fact"] == "2 of 2 are complete"
    assert "build id" in process["program"]["fact"]


def test_a_program_that_was_removed_and_is_stopped(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copy("/bin/sleep", copy)
    with started([copy, "1000"], ready="") as target:
        wait_until(lambda: Path(f"/proc/{target.pid}/comm").read_text() == "copy\n", "its exec")
        copy.unlink()
        target.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: set(thread_states(target.pid).values()) == {"T"}, "its stop")
        _, process = doctor(target.pid)
        assert set(thread_states(target.pid).values()) == {"T"}, "it must stay stopped"
    assert process["state"]["status"] == process["files"]["status"] == "limit"
    assert "CONT" in process["state"]["mend"]
    assert "copy" in process["files"]["fact"] and "restart" in process["files"]["mend"]


def test_one_that_is_traced_by_another() -> None:
    with started(program("idle.py")) as target, started(program("tracer.py", str(target.pid))) as tracer:
        _, process = doctor(target.pid, status=4)
        assert tracer.finish() == ""
    assert f"traced by process {tracer.pid}" in process["access"]["fact"]
    assert "detach" in process["access"]["mend"]


def test_a_process_that_is_chosen_by_what_it_is(tmp_path: Path) -> None:
    copy = tmp_path / "chosen-for-doctor"
    shutil.copy("/bin/sleep", copy)
    cli.remoteprof("doctor", "--name", "^chosen-for-d").failed_with(3, "no process matches")
    with started([copy, "1000"], ready="") as target:
        wait_until(lambda: Path(f"/proc/{target.pid}/cmdline").read_text().startswith(str(copy)), "its exec")
        _, process = doctor("--name", "^chosen-for-doctor$", "--cmdline", " 1000")
    assert process["process"]["fact"].startswith(f"{target.pid} (chosen-for-doc")


def test_no_such_process() -> None:
    cli.remoteprof("doctor", 2**22 - 3).failed_with(3, "no process")
    cli.remoteprof("doctor", "me").failed_with(2)


def test_code_without_names(tmp_path: Path) -> None:
    source = tmp_path / "jit.py"
    source.write_text(
        "import mmap, sys\n"
        "code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with started([interpreter("3.12"), source]) as target:
        _, before = doctor(target.pid)
        perf_map = Path(f"/tmp/perf-{target.pid}.map")
        perf_map.write_text("1000 10 jitted\n")
        try:
            _, after = doctor(target.pid)
        finally:
            perf_map.unlink()
    assert before["JIT code"]["status"] == "limit" and "perf map" in before["JIT code"]["mend"]
    assert after["JIT code"]["status"] == "ok" and "15 bytes" in after["JIT code"]["fact"]
