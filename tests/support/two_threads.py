"""A Python program of two threads, one busy and one that waits, and what any recording of it must show."""

from __future__ import annotations

from support import stats
from support.cli import Recording

PROGRAM = """
import sys, threading
def waits(): sys.stdin.read()
def busy():
    value = 1
    while True:
        value = (value * 31 + 7) & 0xFFFFF
threading.Thread(target=busy, daemon=True).start()
print("ready", flush=True)
waits()
"""


def judge(recording: Recording, pid: int) -> None:
    """Both threads must have been read; `pid` is what the process is called where it was recorded."""
    assert stats.faults(recording.stats, recording.profile) == []
    profile = recording.profile
    assert {"waits", "busy", "<module>"} <= profile.functions()
    assert profile.with_function("busy", "cpu") > 0.8 * profile.total("cpu")
    threads = {
        name: {s.labels["thread_id"] for s in profile.samples if name in s.names()} for name in ("waits", "busy")
    }
    assert threads["waits"] == {pid} and len(threads["busy"]) == 1 and pid not in threads["busy"]
    assert not [s for s in profile.samples if s.values["samples"] and s.names()[0].startswith("[unreadable")]
