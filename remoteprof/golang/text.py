"""Goroutines as text, in the two ways of Go: grouped (debug=1 of runtime/pprof), and one by one as after a panic
(debug=2).

Formats: src/runtime/pprof/pprof.go (printCountProfile, printStackRecord) and src/runtime/traceback.go (goroutineheader,
traceback2, printcreatedby).
"""

from __future__ import annotations

from collections.abc import Iterator

from remoteprof.golang.goroutines import Goroutine, Goroutines, group_key
from remoteprof.golang.stacks import Frame, short_name
from remoteprof.text import printable

_MINUTE = 60_000_000_000
_RUNTIME = ("runtime.", "internal/runtime/")


def grouped(found: Goroutines) -> Iterator[str]:
    """Lines: each stack once, after the number of goroutines that have it; the largest number first."""
    yield f"goroutine profile: total {len(found.all)}"
    for group in found.groups():
        yield from (printable(line) for line in f"{len(group)} {group_key(group[0])}".split("\n"))
        stack = group[0].stack
        shown = [frame for frame in stack if not frame.function.startswith(_RUNTIME)]
        # What leads there inside of the runtime is left out at the leaf only.
        first = stack.index(shown[0]) if shown else 0
        for frame in stack[first:]:
            if frame.label:
                yield printable(f"#\t{frame.function}")
                continue
            offset = frame.address - frame.entry
            name = f"{short_name(frame.function)}+{offset:#x}"
            yield printable_cells(f"#\t{frame.address:#x}", name, f"{frame.file or '?'}:{frame.line}")
        yield ""


def one_by_one(found: Goroutines) -> Iterator[str]:
    """Lines: each goroutine with its state, its stack and what created it, as a traceback shows them."""
    for index, one in enumerate(found.all):
        if index:
            yield ""
        yield from of_goroutine(one)


def of_goroutine(one: Goroutine) -> Iterator[str]:
    """Lines of one goroutine. Functions of the runtime are left out where there are others, as tracebacks do."""
    facts = [one.reason or one.state]
    if one.waited_ns >= _MINUTE:
        facts.append(f"{one.waited_ns // _MINUTE} minutes")
    yield printable(f"goroutine {one.id} [{', '.join(facts)}]:")
    hide = any(_in_traceback(frame) for frame in one.stack)
    place = 0
    for frame in one.stack:
        # Calls inlined into one another are at one place, that of the innermost.
        place = place or frame.address
        at, place = place, 0 if frame.last else place
        if hide and not _in_traceback(frame):
            continue
        if frame.label:
            yield printable(frame.function)
            continue
        name = "panic" if frame.function == "runtime.gopanic" else short_name(frame.function)
        yield printable(f"{name}(...)")
        yield _place(frame, at)
    # The runtime itself created the first one.
    if one.creator is not None and one.id != 1:
        parent = f" in goroutine {one.parent}" if one.parent else ""
        yield printable(f"created by {short_name(one.creator.function)}{parent}")
        yield _place(one.creator, one.creator.address)


def _place(frame: Frame, address: int) -> str:
    # The offset is that of the return address; of an inlined call there is none.
    offset = "" if frame.inlined else f" +{address + 1 - frame.entry:#x}"
    return printable_cells("", f"{frame.file or '?'}:{frame.line}{offset}")


def printable_cells(*cells: str) -> str:
    """Cells after one another, with tabs between them."""
    return "\t".join("\t".join(printable(part) for part in cell.split("\t")) for cell in cells)


def _in_traceback(frame: Frame) -> bool:
    """src/runtime/traceback.go, showfuncinfo."""
    name = frame.function
    if name == "runtime.gopanic" or not name.startswith(_RUNTIME):
        return True
    # What the runtime exports is called by programs.
    last = name.rpartition("/")[2].partition(".")[2].lstrip("(*")
    return name.startswith("runtime.") and last[:1].isupper() and last[:1].isascii()
