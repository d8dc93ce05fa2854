"""The native side: reading targets, and the sampler process. Integers cross in bulk, strings once a window."""

import sys
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypedDict

from remoteprof.profile.model import Location, Sample

ADD_CAPABILITY: str
"""What gives a container the right to trace: the lines for Docker and Kubernetes."""
NO_FILTER: str
"""What takes a filter of system calls (seccomp) away."""

class Mapping:
    """One line of /proc/PID/maps; `path` is the rest of the line, unchanged (` (deleted)` and `\\012` included)."""

    def __init__(
        self, start: int, end: int, permissions: str, offset: int, device: str, inode: int, path: str
    ) -> None: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def permissions(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def inode(self) -> int: ...
    @property
    def path(self) -> str: ...

class Target:
    """A process, opened for reading; it is not attached to. Raises the classes of remoteprof.errors."""

    def __init__(self, pid: int) -> None: ...
    @property
    def pid(self) -> int: ...
    @property
    def start_time(self) -> int:
        """Clock ticks since boot at which the process started, on Windows units of 100 ns since 1601 (with pid: its
        identity)."""

    @property
    def name(self) -> str: ...
    def mappings(self) -> list[Mapping]: ...
    if sys.platform == "win32":
        def modules(self) -> tuple[list[Mapping], str]:
            """The loaded modules, the program first, and what is wrong with the list ("" = nothing)."""

    def threads(self) -> list[int]: ...
    def read(self, address: int, size: int) -> bytes:
        """`size` bytes (at most 64 MiB) at `address`; OSError where they cannot be read."""

class Batch:
    """What one window of sampling saw of one process. Complete in itself.

    Frames are `(kind, name, file, line, start_line, address, mapping)`; kind is "python", "native", "loop" (native
    code of the evaluation loop, below the Python frames that it runs), "label" (such as `[unsampled]`) or, only in
    Goroutines, "inlined" and "outermost"; line 0 =
    unknown; mapping is an index into `mappings`, -1 = none. A stack is a run of frame indices, leaf first:
    `stack_frames[stack_starts[i]:stack_starts[i + 1]]`. Rows are columns of equal length.
    """

    @property
    def pid(self) -> int: ...
    @property
    def process(self) -> str: ...
    @property
    def start_ns(self) -> int:
        """Unix time of the first tick, nanoseconds."""

    @property
    def duration_ns(self) -> int: ...
    @property
    def runtime(self) -> str:
        """Such as "CPython 3.12.1" or "Go 1.26.8"; "" where none was found."""

    @property
    def frames(self) -> list[tuple[str, str, str, int, int, int, int]]: ...
    @property
    def stack_starts(self) -> bytes:
        """u32, one more than stacks."""

    @property
    def stack_frames(self) -> bytes:
        """u32."""

    @property
    def threads(self) -> list[tuple[int, str]]:
        """(tid, name)."""

    @property
    def rows(self) -> dict[str, bytes]:
        """u32 columns `thread` (index), `stack` (index), `state` (index into states), `labels` (index); u64 columns
        `time` (Unix nanoseconds, 0 = any; a thread that sleeps on keeps its first), `samples`, `cpu`, `wall`, `gil`
        (nanoseconds)."""

    @property
    def labels(self) -> list[list[tuple[str, str]]]:
        """Sets of key and value that the program itself gave, sorted; the first is empty."""

    @property
    def lines(self) -> list[tuple[int, list[tuple[str, str, int, int]]]]:
        """The native frames whose functions the runtime itself tells: index of the frame, and of each function, the
        innermost inlined call first, name, file, line and first line (0 = unknown)."""

    @property
    def states(self) -> list[str]:
        """Names that the `state` column points to; "" = no label."""

    @property
    def mappings(self) -> list[Mapping]:
        """The executable mappings that native frames are in."""

    @property
    def stats(self) -> dict[str, Any]:
        """The fields of surface.md that the sampler knows, pause_us and caches included."""

    @property
    def notes(self) -> list[str]:
        """What the user should be told, such as a lowered rate."""

    @property
    def locals(
        self,
    ) -> list[tuple[int, list[tuple[int, list[tuple[str, str, str, str, bool]], int]], int, int, int, bool]]:
        """The variables of each stack that was read, where start() asked for them: thread id, frames, values and parts
        of values that could not be read, values that changed faster than that, Python frames of which not all was read,
        whether the time was up. A frame is the index in its stack, variables, and how many more there are; a variable
        (name, kind, value, type, whether the value is cut), kind as in remoteprof.profile.variables."""

class Goroutines(TypedDict):
    """The goroutines of a process. Frames and stacks are as in Batch, with two differences: a "native" frame has its
    name, and follows those that were inlined into it, of kind "inlined": together they are one location. Where the
    function that holds the code is left out, the last of these is "outermost". `address` lies within the call, or is
    that of the inlined call; `mapping` is always -1."""

    version: str
    """Such as "go1.26.8"; "" = unknown."""
    frames: list[tuple[str, str, str, int, int, int, int]]
    entries: bytes
    """u64: the first address of the function that holds each frame's code, 0 = none."""
    stack_starts: bytes
    stack_frames: bytes
    rows: list[tuple[int, str, str, int, int, int, int, int]]
    """Each goroutine: id, state, what it waits for ("" = nothing), for how many nanoseconds (0 = unknown), index of the
    stack, of the frame that created it (0 = unknown), the goroutine that did (0 = unknown), index of the labels."""
    labels: list[list[tuple[str, str]]]
    """Sets of key and value, sorted."""
    notes: list[str]

class Buckets(TypedDict):
    """A profile that the runtime of a Go program keeps, neither scaled nor converted. Frames and stacks are as in
    Goroutines; a frame of C has an address, and the name ""."""

    version: str
    frames: list[tuple[str, str, str, int, int, int, int]]
    entries: bytes
    stack_starts: bytes
    stack_frames: bytes
    rows: list[tuple[int, int, list[int]]]
    """Each bucket: its address, by which it is known as long as the program runs, index of the stack, four values.
    Heap: objects and bytes allocated, objects and bytes freed, in the order of the runtime's list; others: events and
    ticks, the most ticks first, and two zeros."""
    rate: int
    """Heap: one allocation in so many bytes is sampled; block: ticks; mutex: one event in so many. 0 or less = none."""
    factor: int
    """What the values of a mutex profile are to be multiplied with; 1 in others, and since Go 1.20."""
    ticks: int
    """Of the CPU's clock in a second; heap: 0."""
    memory: tuple[int, int]
    """What the process's memory is known by: exec gives it another."""
    notes: list[str]

class Link:
    """The supervisor's end of the way to a sampler process. Only one thread may use it."""

    if sys.platform == "win32":
        def __init__(self, commands: int, events: int) -> None:
            """Handles of two pipes, which stay the caller's."""
    else:
        def __init__(self, fd: int) -> None:
            """A socket, which stays the caller's."""

    def add(self, pid: int, native: bool) -> None:
        """`native`: a process without a known runtime will do. Answered by an `added` or `failed` event; on Windows the
        pid of `added` is that of the interpreter where `pid` is a launcher of one, such as python.exe of a venv."""

    if sys.platform == "win32":
        def hold(self, pid: int) -> None:
            """Put CMD, which was created suspended, into a job; it runs from start() on. Answered by `added` or
            `failed`. If the link is closed before, it is ended."""
    else:
        def launch(self, argv: list[bytes], environment: list[bytes], stops: bool) -> None:
            """Fork CMD, held before its exec until start(); answered by `added` or `failed`. `stops`: threads are to be
            stopped, so that it fails where the system does not let us. If it cannot be executed,
            start() is answered by a `failed` event whose error is an OSError."""

    def start(
        self,
        rate: float,
        duration_ns: int,
        max_ticks: int,
        idle: bool,
        native: bool,
        nonblocking: bool,
        max_pause_ns: int,
        max_stack: int,
        children: bool,
        children_match: str,
        times: bool,
        locals_pause_ns: int,
    ) -> None:
        """Begin sampling all targets. max_stack: most bytes of one native stack copied. duration_ns and max_ticks:
        0 = no end. locals_pause_ns: read the variables of Python frames, for as long at most where a thread has to be
        stopped for it; 0 = not. children: the descendants of the first target too, each announced by a `found` event
        and ended by a `batch`, or by `exited` where there is no sample of it; children_match: only those whose name
        this regular expression is found in, "" = all. times: a row for each sample, with its time. Ends with a
        `finished` event.
        ValueError as check_pattern()."""

    def progress(self) -> None:
        """Answered by a `progress` event."""

    def cut(self) -> None:
        """End the window: a `part` event for every target that goes on follows, then `cut`. What ended since the last
        one is part of the same window. Sampling goes on."""

    def stop(self) -> None:
        """End sampling; `batch` events for every target follow, then `finished`."""

    def goroutines(self, pid: int, system: bool) -> None:
        """Read the goroutines of a process, `system`: also the runtime's own; answered by `goroutines` or `failed`. Not
        while sampling."""

    def buckets(self, pid: int, kind: str, all: bool) -> None:
        """Read the profile `kind` of a process ("heap", "block", "mutex"); all: in a heap profile frames of
        internal/runtime are not left out at the leaf. Answered by `buckets` or `failed`. ValueError for another kind.
        """

    def receive(self, timeout: float) -> Event | None:
        """The next event; None after `timeout` seconds or when a signal arrived. EOFError when the sampler ended."""

class Event:
    """One message of the sampler."""

    kind: Literal[
        "added",
        "found",
        "failed",
        "exited",
        "progress",
        "batch",
        "part",
        "cut",
        "finished",
        "goroutines",
        "buckets",
    ]
    pid: int
    """added, found, failed, exited, batch, part."""
    status: int
    """exited: the wait status of a launched CMD, on Windows its exit code; -1 for other targets."""
    samples: int
    """progress: samples so far."""
    pause_p99_us: float
    """progress."""
    batch: Batch | None
    goroutines: Goroutines | None
    buckets: Buckets | None
    error: Exception | None
    """failed: the exception to raise."""

def check_pattern(pattern: str) -> None:
    """Raises ValueError, saying why, for what is no regular expression."""

if sys.platform == "win32":
    def sampler_main(commands: int, events: int, record: str) -> None:
        """The sampler process: serves the two pipes until their other ends close. `record`: see new_record()."""

    def process_name(pid: int) -> str:
        """The name of the program's file; "" where the process is gone, as None below."""

    def process_start_ns(pid: int) -> int | None:
        """Unix time at which a process was created, nanoseconds."""

    def process_cpu_ns(pid: int) -> int | None: ...
    def process_peak_bytes(pid: int) -> int | None:
        """The largest resident size so far."""

    def new_record() -> str:
        """Makes the file, in the user's temporary folder, in which a sampler that this process starts says which thread
        it holds suspended. Gives its path. OSError."""

    def settle_record(record: str) -> None:
        """Lets go on what a sampler that has ended held, and removes its record."""

    def left_suspended() -> list[tuple[str, int, int, int, int]]:
        """Threads that samplers left suspended that are gone, as their supervisors are: record, pid of the sampler, pid
        and thread id, and how often the thread is suspended."""

    def resume_left(record: str) -> bool:
        """Lets such a thread go on, and removes the record. False, and nothing is done, where it is not suspended any
        more, or by somebody else too."""

    def resume_thread(tid: int) -> bool:
        """Takes back one suspension; False where there is no such thread."""

    def wine_version() -> str:
        """Such as "8.0"; "" on Windows itself."""

    def tells_thread_states() -> bool:
        """Whether states and context switches of threads are told here."""

    def enable_debug_privilege() -> bool:
        """Enables SeDebugPrivilege in this process. False where its user does not have it."""

    def integrity_level(pid: int) -> int | None:
        """The integrity level of a process, such as 0x2000 = medium; None where it is not told."""

    def protection_level(pid: int) -> int | None:
        """The level at which Windows protects a process from everybody; None = not protected, or it is not told."""

else:
    def sampler_main(fd: int) -> None:
        """The sampler process: serves the socket `fd` until `finished` or until the other end closes. Never returns
        before."""

class Symbolized(TypedDict):
    """What symbolize() tells of a module."""

    build_id: str
    debug_info: bool
    debug_file: str | None
    """Path of the separate debug file as the target sees it; "" for the one given."""
    symtab: bool
    symtab_in_debug_file: bool
    """The file itself has none."""
    dynsym: bool
    mini_debug_info: bool
    eh_frame: bool
    debug_frame: bool
    lines: list[list[tuple[str, str, str, int, int, int]]]
    """For each address, the innermost inlined call first: (name, system_name, file, line, column, start_line)."""

def symbolize(
    source: int | bytes,
    start: int,
    offset: int,
    addresses: list[int],
    *,
    build_id: str = "",
    path: str = "",
    roots: list[str] = ...,
    debug_file: int = -1,
) -> Symbolized:
    """Names of `addresses` in a mapping that begins at `start` and shows the ELF file `source` (an open descriptor, or
    its bytes) from `offset` on.

    build_id: that of what is mapped, "" = not known. path: the module's, as the target sees it; `roots` are folders
    that stand for the target's /, for separate debug files. debug_file: descriptor of one. Raises ValueError for what
    is no ELF file, or not the one that is mapped; OSError.
    """

def symbolize_pe(
    path: str, head: bytes, offsets: list[int]
) -> tuple[bool, list[list[tuple[str, str, str, int, int, int]]]]:
    """Names of the code at `offsets` from the base of the module that is loaded from the PE file at `path` and begins,
    in memory, with `head` (its headers): whether there is debug information; and for each offset what symbolize() tells
    as lines. Raises ValueError for what is no PE file for x86-64, or not the one that is mapped; OSError."""

def weigh(
    samples: Iterable[Sample], column: int, functions_of: Callable[[Location], list[int]]
) -> tuple[list[int], list[int]]:
    """What each function took in a column of values, by its number: by itself, and with all that it called.
    `functions_of` numbers those of a location, the innermost first, and is asked once for each."""

def build_id(source: int | bytes) -> str:
    """The GNU build id, in hex, of an ELF file of any kind (an open descriptor, or its bytes); "" = none. Reads headers
    and notes only. Raises ValueError for what is no ELF file; OSError."""

def go_build_id(source: int | bytes) -> str:
    """As build_id(), the text by which Go's own tools know a program."""

def go_build(fd: int) -> tuple[str, str] | None:
    """How the Go program of an open file was built: the version of Go, and lines of a kind (path, mod, dep, build), a
    tab and a value. None for what Go did not build; OSError."""

def perf_map(pid: int) -> int:
    """Opens the perf map that the process writes for JIT code; gives a descriptor, which is the caller's. OSError where
    there is none that can be trusted."""

def perf_map_names(text: bytes, addresses: list[int]) -> list[str | None]: ...
def jit_dump_names(dump: int, addresses: list[int]) -> list[tuple[str, str, int] | None]:
    """Function, file and line at each of `addresses`, by the jitdump that is open as `dump`; None where it tells
    nothing. Raises OSError for what is no jitdump of this machine's kind."""
