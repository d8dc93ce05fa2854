"""Generated native programs in which every function has its legal callers, and the oracle that checks stacks of them.

A program has chains of functions, each LINKS deep, of many kinds; each chain ends in leaves. `entryN` runs chain N for
ever. What the kinds are in C, C++ and Rust, support/sources.py knows.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise

from support.pprof import Frame, Profile, Sample

DEEP = 4
"""Chains with a thread each."""
CHAINS = 7
"""And those run by signal handlers (4, 5) and by JIT'd or loaded code (6)."""
LINKS = 84
SHORT_LINKS = 12
LEAVES = 5
TURNS = 2
"""How often a recursive function calls itself."""

ANY = 0
"""Any line."""
NAME = re.compile(r"\b((?:chain|leaf)\d+_\d+_[a-z]+|entry\d+|entry_[a-z]+|run\d+|on_[a-z]+)\b")
NESTED = re.compile(r"\bdeep<(\d+)")
LIBRARY = re.compile(
    r"\b(std|core|alloc)::|^(0x|_?qsort|__qsort|__GI_|msort|smoothsort|trinkle|sift|wrapper_cmp|_ExternalCode$|jitted)"
    r"|^(qsort_s|quick_sort|small_sort|compare_wrapper)$"  # wine's qsort
    r"|^$|^sorted\b|^operator\(\)|^legal::(sorted|boxed)\b"
)
"""Names that may stand between two functions of a program where a library calls back."""


@dataclass
class Function:
    """One function: `kind` says how it is called, `calls` what its own body does to reach its children."""

    name: str
    kind: str
    tail: bool = False
    children: list[Function] = field(default_factory=list)


@dataclass
class Legal:
    """callee → (caller, line of the call); ANY line where the caller's text is not generated."""

    callers: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    lines: dict[str, tuple[int, int]] = field(default_factory=dict)
    interrupters: set[str] = field(default_factory=lambda: {"on_alarm", "on_nested", "on_profile"})
    """Functions that the kernel calls: whatever ran."""
    callbacks: set[str] = field(default_factory=set)
    """Functions that a library calls, under frames of its own."""

    landing_pads: bool = False
    """GCC moves them to .cold, where they have the line of whatever stands before them: no line of a leaf is wrong."""

    def __post_init__(self) -> None:
        self.add("entry_deep", "entry_deep", ANY)
        self.add("entry0", "entry_deep", ANY)
        self.add("on_call", "entry_load", ANY)
        # Two libraries, mostly in the same place, called by different functions.
        self.add("on_call", "entry_first", ANY)
        self.add("on_other", "entry_second", ANY)
        self.add("entry_first", "entry_swap", ANY)
        self.add("entry_second", "entry_swap", ANY)

    def add(self, callee: str, caller: str, line: int) -> None:
        self.callers.setdefault(callee, set()).add((caller, line))

    def close_tails(self, tails: list[tuple[str, str]]) -> None:
        """(caller, callee) of calls that a compiler may have made jumps: whoever called the caller may seem to have
        called the callee."""
        for caller, callee in tails:
            self.callers[callee] |= self.callers.get(caller, set())


@dataclass
class Verdict:
    """What the oracle counted, in samples."""

    samples: int = 0
    legal: int = 0
    illegal: int = 0
    truncated: int = 0
    other: int = 0
    depth: int = 0
    functions: set[str] = field(default_factory=set)
    bottoms: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    """What is below each entry, as names from the root."""
    reasons: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    """Calls whose line was compared."""


def graph(seed: int, kinds: tuple[str, ...], leaf_kinds: tuple[str, ...], callbacks: tuple[str, ...]) -> list[Function]:
    """The first function of each chain. A kind of `callbacks` cannot be the first of a chain, and calls nothing in tail
    position."""
    rng = random.Random(seed)
    chains = []
    for chain in range(CHAINS):
        leaves = []
        for index in range(LEAVES):
            kind = leaf_kinds[index % len(leaf_kinds)]
            leaves.append(Function(f"leaf{chain}_{index}_{kind}", kind))
        below = leaves
        for link in reversed(range(LINKS if chain < DEEP else SHORT_LINKS)):
            kind = rng.choice([kind for kind in kinds if link or kind not in callbacks])
            tail = kind not in callbacks and kind != "recursive" and rng.random() < 0.15
            below = [Function(f"chain{chain}_{link}_{kind}", kind, tail, below)]
        chains.append(below[0])
    return chains


def known(frame: Frame) -> str:
    """The name of a generated function, "" for others."""
    found = NAME.search(frame.qualified)
    return found[1] if found else ""


def renamed(frame: Frame, name: str, line: int = -1) -> Frame:
    return replace(frame, name=name, line=frame.line if line < 0 else line)


def fault(legal: Legal, frames: list[Frame], verdict: Verdict) -> str:
    """Why this stack (root first) cannot have been; "" where it can."""
    above: Frame | None = None
    between: list[str] = []
    for frame in frames:
        name = known(frame)
        if not name:
            between.append(frame.qualified)
            continue
        if above is None:
            if not name.startswith("entry"):
                return f"{name} stands at the root, over {between}"
            bottoms = verdict.bottoms.setdefault(name, set())
            if len(bottoms) < 5:
                bottoms.add(tuple(between))
        elif name not in legal.interrupters:
            caller = known(above)
            allowed = legal.callers.get(name, set())
            line = above.line
            if not any(caller == who and (ANY in (at, line) or at == line) for who, at in allowed):
                return f"{name} called from {caller}:{line}, legal is {sorted(allowed)[:6]}"
            verdict.lines += bool(line)
            strange = [other for other in between if not LIBRARY.search(other)]
            if strange or (between and name not in legal.callbacks):
                return f"{between} between {caller} and {name}"
        above, between = frame, []
    if above is None:
        return f"no function of the program: {[frame.qualified for frame in frames]}"
    depths = [int(found[1]) for other in between if (found := NESTED.search(other))]
    if any(outer != inner + 1 for outer, inner in pairwise(depths)):
        return f"templates nest as {depths}"
    first, last = legal.lines.get(known(above), (0, 0))
    if first and above.line and not legal.landing_pads and not first <= above.line <= last:
        return f"{known(above)} is at line {above.line}, outside of {first} to {last}"
    return ""


def labels(sample: Sample) -> list[str]:
    return [frame.name for frame in sample.frames if frame.name.startswith("[")]


def judge(legal: Legal, profile: Profile, others: re.Pattern[str] | None = None) -> Verdict:
    """Check every stack of the profile. `others`: a name that marks samples which are not the generated code's."""
    verdict = Verdict()
    for sample in profile.samples:
        count = sample.values["samples"]
        if count == 0:
            continue
        verdict.samples += count
        if "[truncated]" in sample.names() or any(name.startswith("[unreadable") for name in labels(sample)):
            verdict.truncated += count
            verdict.reasons["cut: " + " < ".join(sample.names()[::-1][:6])] += count
            continue
        names = " ".join(frame.qualified for frame in sample.frames)
        if others and not NAME.search(names) and others.search(names):
            verdict.other += count
            continue
        reason = fault(legal, [frame for frame in sample.frames if not frame.name.startswith("[")], verdict)
        if reason:
            verdict.illegal += count
            verdict.reasons[reason] += count
        else:
            verdict.legal += count
            verdict.depth = max(verdict.depth, len(sample.frames))
            verdict.functions.update(filter(None, map(known, sample.frames)))
    return verdict
