"""How often the threads of a process of Windows are suspended, as Windows itself counts. Answers each line of its input
with a line of JSON:

    count PID        {thread: count} of those that are suspended
    suspend THREAD   the count before
    resume THREAD    the count before
"""

import ctypes
import json
import sys
from ctypes import wintypes

kernel32 = ctypes.WinDLL("kernel32")
kernel32.CreateToolhelp32Snapshot.restype = wintypes.HANDLE
kernel32.OpenThread.restype = wintypes.HANDLE
SNAPTHREAD, SUSPEND_RESUME = 4, 2


class Entry(ctypes.Structure):
    """THREADENTRY32."""

    _fields_ = [
        (name, wintypes.DWORD)
        for name in ("size", "usage", "thread", "process", "priority", "change", "flags")
    ]  # fmt: skip


def threads(pid):
    snapshot = wintypes.HANDLE(kernel32.CreateToolhelp32Snapshot(SNAPTHREAD, 0))
    entry = Entry(ctypes.sizeof(Entry))
    found = []
    more = kernel32.Thread32First(snapshot, ctypes.byref(entry))
    while more:
        if entry.process == pid:
            found.append(entry.thread)
        more = kernel32.Thread32Next(snapshot, ctypes.byref(entry))
    kernel32.CloseHandle(snapshot)
    return found


def change(thread, call):
    """The count before; None where there is no such thread."""
    handle = kernel32.OpenThread(SUSPEND_RESUME, False, thread)
    if not handle:
        return None
    before = call(wintypes.HANDLE(handle))
    kernel32.CloseHandle(wintypes.HANDLE(handle))
    return before


def count(pid):
    counts = {}
    for thread in threads(pid):
        before = change(thread, kernel32.SuspendThread)
        if before is not None:
            change(thread, kernel32.ResumeThread)
            counts[thread] = before
    return {thread: before for thread, before in counts.items() if before}


for line in sys.stdin:
    command, number = line.split()
    if command == "count":
        answer = count(int(number))
    else:
        answer = change(int(number), {"suspend": kernel32.SuspendThread, "resume": kernel32.ResumeThread}[command])
    print(json.dumps(answer), flush=True)
