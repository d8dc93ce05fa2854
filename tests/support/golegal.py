"""A generated Go program in which every function has exactly one legal caller line, and the oracle that checks stacks
of it. A stack put together from two moments, or by a wrong size of a frame, shows as an illegal step.

Chains of functions of many kinds, some inlined, run in goroutines of their own, whose stacks therefore grow on the way;
some allocate, take locks, or ask for the time, so that samples meet the runtime everywhere.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from support.pprof import Frame, Profile, Sample

CHAINS = 6
LINKS = 40
KINDS = ("plain", "noinline", "method", "closure", "generic", "interface", "deferred")
STEPS = (
    "value = value*6364136223846793005 + {n}",
    "for step := uint64(0); step < {n}; step++ {{ value ^= value<<3 + step }}",
    "kept = append([]uint64(nil), value, {n})",
    "value += uint64(time.Now().Nanosecond())",
    "lock.Lock(); value += {n}; lock.Unlock()",
    "numbers[value%{n}] = value",
    "value += uint64(len(fmt.Sprint(value)))",
    "runtime.Gosched()",
)


@dataclass
class Legal:
    """The legal steps: callee → (caller, line of the call); and the lines that belong to each function."""

    callers: dict[str, tuple[str, int]] = field(default_factory=dict)
    lines: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass
class Verdict:
    """What the oracle counted, in samples."""

    legal: int = 0
    other: int = 0
    """Without any function of the program: the runtime's own threads."""
    truncated: int = 0
    illegal: Counter[str] = field(default_factory=Counter)
    functions: set[str] = field(default_factory=set)
    tops: set[str] = field(default_factory=set)
    """Functions of the runtime and the library that were met above those of the program."""


def generate(folder: Path, seed: int = 1) -> Legal:
    """Write the module and return what is legal in it."""
    rng = random.Random(seed)
    legal = Legal()
    text = [
        "package main",
        "",
        'import ("fmt"; "io"; "os"; "runtime"; "sync"; "time")',
        "var kept []uint64",
        "var lock sync.Mutex",
        "type object struct{ weight uint64 }",
        "type caller interface { call(value uint64) uint64 }",
    ]

    def add(line: str) -> int:
        text.append(line)
        return len(text)

    def steps(count: int) -> None:
        for _ in range(count):
            add("\t" + rng.choice(STEPS).format(n=rng.randint(3, 60)))

    def define(name: str, kind: str, child: tuple[str, str] | None) -> str:
        """Writes a function; gives the name that Go has for it."""
        full = f"main.{name}"
        add("")
        if kind != "plain":
            add("//go:noinline")
        heads = {
            "method": f"func (o *object) {name}(value uint64) uint64 {{",
            "generic": f"func {name}[T any](value uint64, other T) uint64 {{",
        }
        if kind == "interface":
            add(f"type type_{name} struct{{}}")
            heads["interface"] = f"func (type_{name}) call(value uint64) uint64 {{"
            full = f"main.type_{name}.call"
        if kind == "method":
            full = f"main.(*object).{name}"
        if kind == "generic":
            full = f"main.{name}[...]"
        if text[-1].startswith("type type_"):
            text[-2], text[-1] = text[-1], text[-2]
        first = add(heads.get(kind, f"func {name}(value uint64) uint64 {{"))
        if kind != "plain":
            add("\tvar numbers [64]uint64")
            steps(rng.randint(1, 3))
        if child is not None:
            legal.callers[child[0]] = (full, add(f"\t{child[1]}"))
        if kind != "plain":
            steps(rng.randint(1, 2))
            add("\treturn value + numbers[value%64]")
        else:
            add("\treturn value + 1")
        legal.lines[full] = (first, add("}"))
        return full

    def entered(name: str, kind: str) -> str:
        """The expression through which a function is entered."""
        return {
            "method": f"value = (&object{{value}}).{name}(value)",
            "generic": f'value = {name}(value, "text")',
            "interface": f"value = callers[{name!r}].call(value)".replace("'", '"'),
            "closure": f"value = func_{name}(value)",
        }.get(kind, f"value = {name}(value)")

    roots, closures, interfaces = [], [], []
    for chain in range(CHAINS):
        child = None
        for link in reversed(range(LINKS)):
            kind = rng.choice(KINDS[:6])
            name = f"c{chain}_{link}"
            full = define(name, kind, child)
            if kind == "closure":
                closures.append(name)
            if kind == "interface":
                interfaces.append(name)
            child = (full, entered(name, kind))
        assert child is not None
        roots.append(child)
    add("")
    for name in closures:
        add(f"var func_{name} func(uint64) uint64")
    add("var callers = map[string]caller{}")
    add("func init() {")
    for name in closures:
        add(f"\tfunc_{name} = {name}")
    for name in interfaces:
        add(f'\tcallers["{name}"] = type_{name}{{}}')
    add("}")
    for number, (full, expression) in enumerate(roots):
        add("//go:noinline")
        first = add(f"func root{number}(done chan uint64) {{")
        add(f"\tvalue := uint64({number})")
        legal.callers[full] = (f"main.root{number}", add(f"\t{expression}"))
        add("\tdone <- value")
        legal.lines[f"main.root{number}"] = (first, add("}"))
    first = add("func drive() {")
    add("\tdone := make(chan uint64)")
    add("\tfor {")
    for number in range(len(roots)):
        add(f"\t\tgo root{number}(done)")
    add(f"\t\tfor count := 0; count < {len(roots)}; count++ {{ <-done }}")
    add("\t}")
    legal.lines["main.drive"] = (first, add("}"))
    first = add("func main() {")
    add("\tgo drive()")
    add('\tfmt.Println("ready")')
    add("\tio.ReadAll(os.Stdin)")
    legal.lines["main.main"] = (first, add("}"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.go").write_text("\n".join(text) + "\n", encoding="utf-8")
    (folder / "go.mod").write_text("module example.com/legal\n\ngo 1.18\n", encoding="utf-8")
    return legal


def plain(name: str) -> str:
    """A generic function's name without its types: older versions of Go do not tell them."""
    head, bracket, _ = name.partition("[")
    return f"{head}[...]" if bracket else name


def fault(legal: Legal, sample: Sample, verdict: Verdict) -> str:
    """Why this stack cannot have been; "" where it can."""
    frames = [frame for frame in sample.frames if not frame.name.startswith("[")]
    own = [index for index, frame in enumerate(frames) if frame.qualified.startswith("main.")]
    if not own:
        return ""
    names = [plain(frame.qualified) for frame in frames]
    if own != list(range(own[0], own[-1] + 1)) or names[: own[0]] not in ([], ["runtime.main"]):
        return f"other functions among the program's: {' '.join(names)}"
    for index, (caller, callee) in enumerate(pairwise(frames[own[0] : own[-1] + 1]), own[0]):
        if (names[index], caller.line) != legal.callers.get(names[index + 1]):
            return f"{callee.qualified} called from {caller.qualified}:{caller.line}"
    if not names[own[0]].startswith(("main.root", "main.drive", "main.main", "main.init")):
        return f"the root is {names[own[0]]}"
    for frame in frames[own[0] : own[-1] + 1]:
        first, last = legal.lines.get(plain(frame.qualified), (0, 0))
        if not first <= frame.line <= last or not frame.file.endswith("main.go"):
            return f"{frame.qualified} is at {frame.file}:{frame.line}, not at {first} to {last}"
    verdict.functions.update(names[own[0] : own[-1] + 1])
    verdict.tops.update(names[own[-1] + 1 :])
    return ""


def judge(legal: Legal, profile: Profile) -> Verdict:
    """Check every stack of the profile."""
    verdict = Verdict()
    for sample in profile.samples:
        count = sample.values["samples"]
        if not count:
            continue
        labels = {frame.name for frame in sample.frames if frame.name.startswith("[")}
        if any(name.startswith(("[truncated", "[unreadable")) for name in labels):
            verdict.truncated += count
            continue
        reason = fault(legal, sample, verdict)
        if reason:
            verdict.illegal[reason] += count
        elif any(frame.qualified.startswith("main.") for frame in sample.frames):
            verdict.legal += count
        else:
            verdict.other += count
    return verdict


__all__ = ["Frame", "Legal", "Verdict", "generate", "judge"]
