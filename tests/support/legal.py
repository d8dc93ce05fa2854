"""A generated program in which every function has exactly one legal caller line, and the oracle that checks stacks
of it. A stack put together from two moments shows as an illegal step.

The program has CHAINS chains of functions, LINKS deep, of many kinds; each chain ends in a loop over leaves. It never
sleeps and never ends.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from support.pprof import Frame, Profile

CHAINS = 7
LINKS = 78
LEAVES = 4

KINDS = ("plain", "method", "for", "next", "delegating", "closure", "builtin")
GENERATORS = ("_for_", "_next_", "_delegating_")


@dataclass
class Legal:
    """The legal steps: callee -> (caller, line of the call); and the lines that belong to each function."""

    path: Path
    callers: dict[str, tuple[str, int]] = field(default_factory=dict)
    lines: dict[str, tuple[int, int]] = field(default_factory=dict)
    functions: int = 0
    main_lines: set[int] = field(default_factory=set)


@dataclass
class Verdict:
    """What the oracle counted, in samples."""

    samples: int = 0
    legal: int = 0
    illegal: int = 0
    truncated: int = 0
    unreadable: int = 0
    depth: int = 0
    functions: set[str] = field(default_factory=set)
    reasons: Counter[str] = field(default_factory=Counter)


class Writer:
    def __init__(self) -> None:
        self.text: list[str] = []

    def add(self, line: str) -> int:
        self.text.append(line)
        return len(self.text)


def call(kind: str, name: str) -> str:
    """The one expression through which a function of this kind is entered."""
    if kind in ("plain", "closure"):
        return f"value = {name}(value)"
    if kind == "method":
        return f"value = objects.{name}(value)"
    if kind == "next":
        return f"value = next({name}(value))"
    if kind == "builtin":
        return f"value = list(map({name}, (value,)))[0]"
    if kind == "for":
        return f"for value in {name}(value): value += 1"
    raise AssertionError(kind)


def generate(path: Path, seed: int = 1) -> Legal:
    """Write the program and return what is legal in it."""
    rng = random.Random(seed)
    out = Writer()
    legal = Legal(path)
    out.add('"""Generated: every function has one legal caller line."""')
    out.add("import sys")
    methods: list[str] = []

    def work(indent: str, loops: int = 0) -> None:
        for _ in range(rng.randint(1, 3)):
            out.add(f"{indent}value = (value * {rng.randint(3, 99)} + {rng.randint(1, 99)}) & 0xFFFFF")
        if loops:
            out.add(f"{indent}for step in range({loops}):")
            out.add(f"{indent}    value = (value + step * {rng.randint(3, 9)}) & 0xFFFFF")

    def define(name: str, kind: str, children: list[tuple[str, str]], loops: int) -> None:
        """One function; children are (kind, name) in the order of their calls."""
        out.add("")
        if kind == "method":
            methods.append(name)
        own = f"def {name}({'self, ' if kind == 'method' else ''}value):"
        start = out.add(own)
        first = start
        body = "    "
        work(body)
        for child_kind, child in children:
            if child_kind == "delegating":
                # Not under "next": a generator that is dropped half-way closes the one that it delegates to without
                # being on the stack itself.
                if kind in ("for", "delegating"):
                    line = out.add(f"{body}yield from {child}(value)")
                else:
                    line = out.add(f"{body}for value in {child}(value): value += 1")
            elif child_kind == "builtin" and rng.random() < 0.5:
                line = out.add(f"{body}value = sorted((value, 1), key={child})[1]")
            else:
                line = out.add(body + call(child_kind, child))
            legal.callers[child] = (name, line)
            work(body)
        if loops:
            work(body, loops)
        if f"_{kind}_" in GENERATORS:
            last = out.add(f"{body}yield value & 0xFFFFF")
            if kind != "next":
                last = out.add(f"{body}value += 1")
        else:
            last = out.add(f"{body}return value & 0xFFFFF")
        legal.lines[name] = (first, last)

    roots: list[tuple[str, str]] = []
    for chain in range(CHAINS):
        kinds = [rng.choice(KINDS) for _ in range(LINKS)]
        names = [f"chain{chain}_{kind}_{link}" for link, kind in enumerate(kinds)]
        leaves: list[tuple[str, str]] = []
        for leaf in range(LEAVES):
            kind = rng.choice(KINDS)
            leaves.append((kind, f"leaf{chain}_{kind}_{leaf}"))
        for kind, name in leaves:
            define(name, kind, [], loops=rng.randint(5, 40))
        for link in reversed(range(LINKS)):
            children = leaves if link == LINKS - 1 else [(kinds[link + 1], names[link + 1])]
            define(names[link], kinds[link], children, loops=rng.choice((0, 0, 0, 5)))
        roots.append((kinds[0], names[0]))

    out.add("")
    out.add("class Objects:")
    out.add("    pass")
    out.add("")
    out.add("objects = Objects()")
    out.add("")
    for name in methods:
        out.add(f"Objects.{name} = {name}")
    out.add("")
    first = out.add("def main(value):")
    out.add("    print('ready', flush=True)")
    loop = out.add("    while True:")
    legal.main_lines.add(loop)
    for kind, name in roots:
        expression = call("for" if kind == "delegating" else kind, name)
        line = out.add("        " + expression)
        legal.callers[name] = ("main", line)
        legal.main_lines.add(line)
    legal.lines["main"] = (first, len(out.text))
    out.add("")
    legal.callers["main"] = ("<module>", out.add("main(1)"))
    legal.lines["<module>"] = (0, len(out.text))
    legal.functions = len(legal.lines) - 1
    path.write_text("\n".join(out.text) + "\n", encoding="utf-8")
    return legal


def fault(legal: Legal, frames: list[Frame]) -> str:
    """Why this stack (root first) cannot have been; "" where it can."""
    if frames[0].name != "<module>":
        return f"root is {frames[0].name}"
    for caller, callee in pairwise(frames):
        allowed = legal.callers.get(callee.name)
        if allowed is None:
            return f"no such function: {callee.name}"
        if (caller.name, caller.line) != allowed:
            return f"{callee.name} called from {caller.name}:{caller.line}, legal is {allowed[0]}:{allowed[1]}"
    leaf = frames[-1]
    first, last = legal.lines[leaf.name]
    # CPython has instructions that belong to no line (RETURN_GENERATOR, COPY_FREE_VARS): line 0.
    if leaf.line and not first <= leaf.line <= last:
        return f"{leaf.name} is at line {leaf.line}, outside of {first} to {last}"
    for frame in frames[1:]:
        if frame.start_line and frame.start_line != legal.lines[frame.name][0]:
            return f"{frame.name} starts at line {frame.start_line}, not {legal.lines[frame.name][0]}"
        if not frame.file.endswith(legal.path.name):
            return f"{frame.name} is in file {frame.file!r}"
    return ""


def judge(legal: Legal, profile: Profile) -> Verdict:
    """Check every stack of the profile."""
    verdict = Verdict()
    for sample in profile.samples:
        count = sample.values["samples"]
        frames = sample.python()
        labels = {frame.name for frame in sample.frames if frame.name.startswith("[")}
        if count == 0 and labels == {"[unsampled]"}:
            continue
        verdict.samples += count
        if any(name.startswith("[unreadable") for name in labels):
            verdict.unreadable += count
            verdict.reasons[next(iter(labels))] += count
            continue
        if "[truncated]" in labels:
            verdict.truncated += count
            continue
        reason = fault(legal, frames) if frames else "no Python frame"
        if reason:
            verdict.illegal += count
            verdict.reasons[reason] += count
        else:
            verdict.legal += count
            verdict.depth = max(verdict.depth, len(frames))
            verdict.functions.update(frame.name for frame in frames)
    return verdict
