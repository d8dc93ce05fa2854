"""Long recordings, in short (whole: half an hour): threads and libraries come and go while windows are written."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil
from support import cli
from support.recorder import processes
from support.targets import program, started, wait_until, waits_library
from support.windows import faults, files

WINDOWS, SECONDS, RATE, THREADS = (180, 10, 1000, 1000) if cli.LONG else (8, 1, 200, 200)
SETTLED = 6 if cli.LONG else 4
"""Windows after which memory grows no more: a minute."""
GROWTH = 5 << 20
"""Bytes by which it may, all the same."""


def test_windows_while_threads_and_libraries_come_and_go(tmp_path: Path) -> None:
    """All files are valid, and add up; memory stays what it is. How much that was is printed: pytest -s shows it."""
    memory: list[list[int]] = []
    with started(program("churn.py", waits_library(), str(THREADS))) as target:
        options = ("-o", "app.pb.gz", "-r", RATE, "--window", f"{SECONDS}s", "--stats", "stats.json")
        process = cli.begin("attach", target.pid, *options, cwd=tmp_path)
        rounds = 0
        for count in range(1, WINDOWS + 1):
            while len(files(tmp_path)) < count:
                assert process.poll() is None, process.communicate()
                assert target.line().startswith("round ")
                rounds += 1
            memory.append([psutil.Process(pid).memory_info().rss for pid in processes(process.pid)])
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
        target.send("end\n")
        wait_until(lambda: target.line().startswith("round "), "the last round")
    assert process.returncode == 0, errors
    whole = json.loads((tmp_path / "stats.json").read_text())
    assert faults(whole, tmp_path) == []
    assert len(files(tmp_path)) == len([window for window in whole["windows"] if window["path"]]) >= WINDOWS
    assert whole["samples"] > 0 and rounds > 0
    print(f"{rounds} rounds of {THREADS} threads; KiB of supervisor and sampler, a window each:")
    print([[one >> 10 for one in window] for window in memory])
    before, after = (max(map(sum, part)) for part in (memory[:SETTLED], memory[SETTLED:]))
    assert after - before <= GROWTH
