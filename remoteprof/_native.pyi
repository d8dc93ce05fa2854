"""The native side: reading targets, and the sampler process. Integers cross in bulk, strings once a window."""

from typing import Any, Literal, TypedDict

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
        """Clock ticks since boot at which the process started (with pid: its identity)."""

    @property
    def name(self) -> str: ...
    def mappings(self) -> list[Mapping]: ...
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
        """Such as "CPython 3.12.1"; "" where none was found."""

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
        """u32 columns `thread` (index), `stack` (index), `state` (index into states); u64 columns `time` (Unix
        nanoseconds, 0 = any; a thread that sleeps on keeps its first), `samples`, `cpu`, `wall`, `gil`
        (nanoseconds)."""

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

class Link:
    """The supervisor's end of the socket to a sampler process. Only one thread may use it."""

    def __init__(self, fd: int) -> None: ...
    def add(self, pid: int, native: bool) -> None:
        """`native`: a process without a known runtime will do. Answered by an `added` or `failed` event."""

    def launch(self, argv: list[bytes], environment: list[bytes]) -> None:
        """Fork CMD, held before its exec until start(); answered by `added` or `failed`. If it cannot be executed,
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
    ) -> None:
        """Begin sampling all targets. max_stack: most bytes of one native stack copied. duration_ns and max_ticks:
        0 = no end. children: the descendants of the first target too, each announced by a `found` event and ended by a
        `batch`, or by `exited` where there is no sample of it; children_match: only those whose name this regular
        expression is found in, "" = all. times: a row for each sample, with its time. Ends with a `finished` event.
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

    def receive(self, timeout: float) -> Event | None:
        """The next event; None after `timeout` seconds or when a signal arrived. EOFError when the sampler ended."""

class Event:
    """One message of the sampler."""

    kind: Literal["added", "found", "failed", "exited", "progress", "batch", "part", "cut", "finished", "goroutines"]
    pid: int
    """added, found, failed, exited, batch, part."""
    status: int
    """exited: the wait status of a launched CMD; -1 for other targets."""
    samples: int
    """progress: samples so far."""
    pause_p99_us: float
    """progress."""
    batch: Batch | None
    goroutines: Goroutines | None
    error: Exception | None
    """failed: the exception to raise."""

def check_pattern(pattern: str) -> None:
    """Raises ValueError, saying why, for what is no regular expression."""

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

def build_id(source: int | bytes) -> str:
    """The GNU build id, in hex, of an ELF file of any kind (an open descriptor, or its bytes); "" = none. Reads headers
    and notes only. Raises ValueError for what is no ELF file; OSError."""

def go_build_id(source: int | bytes) -> str:
    """As build_id(), the text by which Go's own tools know a program."""

def go_build(fd: int) -> tuple[str, str] | None:
    """How the Go program of an open file was built: the version of Go, and lines of a kind (path, mod, dep, build), a
    tab and a value. None for what Go did not build; OSError."""

def perf_map(pid: int) -> bytes:
    """The perf map that the process writes for JIT code (at most 64 MiB of it). OSError where there is none that can be
    trusted."""

def perf_map_names(text: bytes, addresses: list[int]) -> list[str | None]: ...
def jit_dump_names(dump: int, addresses: list[int]) -> list[tuple[str, str, int] | None]:
    """Function, file and line at each of `addresses`, by the jitdump that is open as `dump`; None where it tells
    nothing. Raises OSError for what is no jitdump of this machine's kind."""
