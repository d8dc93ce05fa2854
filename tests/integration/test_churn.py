"""A long recording in short: threads and libraries come and go while windows are written."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil
from support import cli
from support.recorder import processes
from support.targets import program, started, wait_until, waits_library
from support.windows import faults, files

WINDOWS = 60 if cli.LONG else 8
THREADS = 200


def test_windows_while_threads_and_libraries_come_and_go(tmp_path: Path) -> None:
    """All files are valid, and add up. How much memory it took is printed: pytest -s shows it."""
    memory: list[list[int]] = []
    with started(program("churn.py", waits_library(), str(THREADS))) as target:
        options = ("-o", "app.pb.gz", "-r", 200, "--window", "1s", "--stats", "stats.json")
        process = cli.begin("attach", target.pid, *options, cwd=tmp_path)
        rounds = 0
        for count in range(1, WINDOWS + 1):
            while len(files(tmp_path)) < count:
                assert process.poll() is None, process.communicate()
                assert target.line().startswith("round ")
                rounds += 1
            memory.append([psutil.Process(pid).memory_info().rss >> 10 for pid in processes(process.pid)])
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
        target.send("end\n")
        wait_until(lambda: target.line().startswith("round "), "the last round")
    assert process.returncode == 0, errors
    whole = json.loads((tmp_path / "stats.json").read_text())
    assert faults(whole, tmp_path) == []
    assert len(files(tmp_path)) == len([window for window in whole["windows"] if window["path"]]) >= WINDOWS
    assert whole["samples"] > 0 and rounds > 0
    print(f"{rounds} rounds of {THREADS} threads; KiB of supervisor and sampler, a window each: {memory}")
