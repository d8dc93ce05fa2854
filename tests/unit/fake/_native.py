"""A stand-in for the native module: the same interface, a sampler process that makes its samples up.

FAKE in the environment asks for trouble: "dies" (killed while sampling), "not-python" (CMD cannot be profiled),
"refuses" (no target can be added).
"""

import array
import hashlib
import os
import pickle
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

FRAMES = [
    ("python", "work", "/app/work.py", 12, 10, 0, -1),
    ("python", "main", "/app/main.py", 3, 1, 0, -1),
    ("python", "sleepy\x1b[31m", "/app/work.py", 22, 20, 0, -1),
    ("label", "[unsampled]", "", 0, 0, 0, -1),
]
ADD_CAPABILITY = "docker run --cap-add=SYS_PTRACE"
NO_FILTER = "docker run --security-opt seccomp=unconfined"
TROUBLE = os.environ.get("FAKE", "")


class Mapping(NamedTuple):
    start: int
    end: int
    permissions: str
    offset: int
    device: str
    inode: int
    path: str


def errors():
    from remoteprof import errors

    return errors


class Target:
    def __init__(self, pid):
        if not Path(f"/proc/{pid}").exists():
            raise errors().ProcessNotFound(f"no process {pid}", "list processes with ps -e")
        self.pid = pid
        self.start_time = 1

    def mappings(self):
        from remoteprof.modules import parse_lines

        lines, _ = parse_lines(Path(f"/proc/{self.pid}/maps").read_text())
        return [Mapping(*line) for line in lines]

    def read(self, address, size):
        with Path(f"/proc/{self.pid}/mem").open("rb") as memory:
            memory.seek(address)
            return memory.read(size)


def build_id(source):
    """Not the one in the file, but as good to tell files apart by."""
    content = source if isinstance(source, bytes) else os.pread(source, 1 << 20, 0)
    if not content.startswith(b"\x7fELF"):
        raise ValueError("not an ELF file")
    return hashlib.sha1(content).hexdigest()


def go_build_id(source):
    """None of these is a Go program."""
    return ""


def go_build(fd):
    return None


def u32(*values):
    return array.array("I", values).tobytes()


def u64(*values):
    return array.array("Q", values).tobytes()


def batch(pid, **changes):
    """Three rows: work under main, sleepy under main, and CPU time that nothing was seen of."""
    second = 1_000_000_000
    fields = {
        "pid": pid,
        "process": "app",
        "start_ns": 1_700_000_000 * second,
        "duration_ns": 2 * second,
        "runtime": "CPython 3.12.1",
        "frames": FRAMES,
        "stack_starts": u32(0, 2, 4, 5),
        "stack_frames": u32(0, 1, 2, 1, 3),
        "threads": [(pid, "MainThread"), (pid + 1, "worker")],
        "rows": {
            "thread": u32(0, 1, 0),
            "stack": u32(0, 1, 2),
            "state": u32(1, 2, 0),
            "labels": u32(0, 0, 0),
            "time": u64(0, 0, 0),
            "samples": u64(150, 200, 0),
            "cpu": u64(1_500_000_000, 1_000, 7),
            "wall": u64(1_500_000_000, 2 * second, 0),
            "gil": u64(1_400_000_000, 0, 0),
        },
        "labels": [[]],
        "lines": [],
        "states": ["", "running", "sleeping"],
        "mappings": [],
        "stats": {
            "ticks": 200,
            "thread_ticks": 353,
            "samples": 350,
            "complete": 350,
            "distinct_stacks": 2,
            "gone": 1,
            "missed_ticks": 2,
            "cpu_ns_sampled": 1_500_001_007,
            "cpu_ns_process": 1_500_002_007,
            "caches": {"code": {"hits": 5, "misses": 2}},
            "pause_us": {"count": 150, "p50": 9.0, "p99": 30.0, "max": 40.0, "total": 1400.0},
            "first_sample_ns": time.monotonic_ns(),
            "attached_ns": time.monotonic_ns(),
        },
        "notes": [],
        "locals": [],
    }
    return SimpleNamespace(**{**fields, **changes})


class Link:
    def __init__(self, fd):
        self.socket = socket.socket(fileno=os.dup(fd))

    def say(self, *request):
        send(self.socket, request)

    def add(self, pid, native):
        self.say("add", pid)

    def launch(self, argv, environment, stops):
        self.say("launch", argv, environment)

    def start(self, rate, duration_ns, max_ticks, *others):
        self.say("start", duration_ns, max_ticks)

    def progress(self):
        self.say("progress")

    def stop(self):
        self.say("stop")

    def receive(self, timeout):
        # Python's own select goes on after a signal; a wake-up descriptor tells of one.
        ready, _, _ = select.select([self.socket], [], [], min(timeout, 0.05))
        if not ready:
            return None
        event = {"pid": 0, "status": -1, "samples": 0, "pause_p99_us": 0.0, "batch": None, "error": None}
        event.update(take(self.socket))
        if event["error"] is not None:
            name, *arguments = event["error"]
            event["error"] = getattr(errors(), name, OSError)(*arguments)
        return SimpleNamespace(**event)


def send(stream, message):
    content = pickle.dumps(message)
    stream.sendall(struct.pack("I", len(content)) + content)


def take(stream):
    def exactly(size):
        content = b""
        while len(content) < size:
            part = stream.recv(size - len(content))
            if not part:
                raise EOFError("the sampler process has ended")
            content += part
        return content

    (size,) = struct.unpack("I", exactly(4))
    return pickle.loads(exactly(size))


def symbolize(source, start, offset, addresses, **rest):
    raise ValueError("no names here")


def check_pattern(pattern):
    if pattern == "(":
        raise ValueError("it does not end")


def perf_map(pid):
    raise FileNotFoundError(pid)


def perf_map_names(text, addresses):
    return [None] * len(addresses)


def sampler_main(fd):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stream = socket.socket(fileno=fd)
    Sampling(stream).serve()


class Sampling:
    def __init__(self, stream):
        self.stream = stream
        self.pids = []
        self.command = self.status = self.end = None
        self.going = False

    def say(self, kind, **fields):
        send(self.stream, {"kind": kind, **fields})

    def finish(self):
        self.going = False
        for pid in self.pids:
            self.say("batch", pid=pid, batch=batch(pid))
        self.say("finished")

    def serve(self):
        while True:
            ready, _, _ = select.select([self.stream], [], [], 0.01)
            if ready:
                try:
                    self.answer(*take(self.stream))
                except EOFError:
                    return
            if self.command and self.status is None:
                pid, status = os.waitpid(self.command, os.WNOHANG)
                if pid:
                    self.status = status
                    self.say("exited", pid=pid, status=status)
                    if self.going:
                        self.finish()
            if self.going and self.end and time.monotonic() > self.end:
                self.finish()

    def answer(self, request, *arguments):
        if TROUBLE == "refuses" and request in ("add", "launch"):
            self.say("failed", error=("PermissionDenied", "not permitted", "ask"))
        elif request == "add":
            (pid,) = arguments
            if Path(f"/proc/{pid}").exists():
                self.pids.append(pid)
                self.say("added", pid=pid)
            else:
                self.say("failed", error=("ProcessNotFound", f"no process {pid}", "list processes with ps -e"))
        elif request == "launch":
            argv, environment = arguments
            go, self.go = os.pipe()
            self.command = os.fork()
            if not self.command:
                os.read(go, 1)
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.execvpe(argv[0], argv, dict(entry.split(b"=", 1) for entry in environment))
            self.pids.append(self.command)
            self.say("added", pid=self.command)
        elif request == "start":
            duration_ns, max_ticks = arguments
            if self.command:
                os.write(self.go, b"1")
            if TROUBLE == "dies":
                time.sleep(0.1)
                os.kill(os.getpid(), signal.SIGKILL)
            if TROUBLE == "not-python":
                self.pids.clear()
                self.say("failed", error=("NothingToProfile", "not a Python", ""))
                self.say("finished")
                return
            self.going = True
            if max_ticks:
                self.end = time.monotonic()
            elif duration_ns:
                self.end = time.monotonic() + duration_ns / 1e9
        elif request == "progress":
            self.say("progress", samples=100, pause_p99_us=12.0)
        elif request == "stop" and self.going:
            self.finish()


if __name__ == "__main__":
    import importlib.util

    specification = importlib.util.spec_from_file_location("remoteprof._native", __file__)
    module = importlib.util.module_from_spec(specification)
    sys.modules["remoteprof._native"] = module
    specification.loader.exec_module(module)
    import remoteprof
    from remoteprof.cli import main

    remoteprof._native = module
    main()
