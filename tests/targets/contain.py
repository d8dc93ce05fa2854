"""Runs a program as a container's runtime does: contain.py ROOT WORK CAPABILITIES COMMAND…, in namespaces that are
there already. ROOT is the lower layer of its root, WORK has the upper one and what else an overlay needs; "/" is taken
as it is, with a /proc of its own. CAPABILITIES: the numbers of those that are kept, with commas between."""

import ctypes
import os
import sys
from pathlib import Path

MS_REC, MS_PRIVATE, MNT_DETACH = 1 << 14, 1 << 18, 2
PR_CAPBSET_DROP, PIVOT_ROOT = 24, 155
libc = ctypes.CDLL(None, use_errno=True)


def done(result, what):
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source, target, kind, flags=0, options=""):
    done(libc.mount(*(text and text.encode() for text in (source, target, kind)), flags, options.encode()), target)


def enter(lower, work):
    merged, upper, scratch = (Path(work, name) for name in ("merged", "upper", "scratch"))
    for folder in (merged, upper, scratch):
        folder.mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={lower},upperdir={upper},workdir={scratch}"
    if Path("/proc/self/uid_map").read_text().split()[2] != str(2**32 - 1):
        options += ",userxattr"
    mount("overlay", f"{merged}", "overlay", 0, options)
    mount("proc", f"{merged}/proc", "proc")
    mount("tmpfs", f"{merged}/tmp", "tmpfs")
    os.chdir(merged)
    done(libc.syscall(PIVOT_ROOT, b".", b"."), "pivot_root")
    done(libc.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/")


def main():
    root, work, kept, *command = sys.argv[1:]
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    if root == "/":
        mount("proc", "/proc", "proc")
    else:
        enter(root, work)
    keep = {int(number) for number in kept.split(",")}
    for number in range(64):
        if number not in keep:
            libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    os.execv(command[0], command)


main()
