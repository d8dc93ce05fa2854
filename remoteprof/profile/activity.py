"""What a short window of a program shows: its functions, its threads, and the stacks of one function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from remoteprof.profile.identity import EMPTY, FunctionId, Identities
from remoteprof.profile.table import weigh

if TYPE_CHECKING:
    from remoteprof.profile.model import Profile, Sample

MAX_LINES = 2000
"""Most lines of merged stacks."""


class FunctionLoad(NamedTuple):
    """A function: its own CPU time and, with all that it called, CPU, wall and GIL time; nanoseconds."""

    function: FunctionId
    own: int
    total: int
    wall: int
    gil: int


@dataclass(slots=True)
class ThreadLoad:
    """A thread: the state and the function that it was seen in most, and its times in nanoseconds."""

    pid: int
    thread_id: int
    name: str
    process: str
    state: str = ""
    function: str = ""
    cpu: int = 0
    wall: int = 0
    gil: int = 0


class Branch(NamedTuple):
    """A line of merged stacks: `depth` grows only where stacks part; `value` is that of all stacks through here."""

    depth: int
    function: FunctionId
    value: int


@dataclass(slots=True)
class _Node:
    value: int = 0
    below: dict[FunctionId, _Node] = field(default_factory=dict)


def functions(profile: Profile) -> list[FunctionLoad]:
    """Every function that was seen, in no order."""
    columns = {kind.type: index for index, kind in enumerate(profile.sample_types)}
    cpu = weigh(profile, columns["cpu"])
    wall = weigh(profile, columns["wall"])
    gil = weigh(profile, columns["gil"]) if "gil" in columns else {}
    none = (0, 0)
    return [
        FunctionLoad(one, *cpu.get(one, none), wall.get(one, none)[1], gil.get(one, none)[1])
        for one in {**cpu, **wall, **gil}
    ]


def threads(profile: Profile) -> list[ThreadLoad]:
    """Every thread that was seen, those with the most CPU time first."""
    columns = {kind.type: index for index, kind in enumerate(profile.sample_types)}
    identities = Identities()
    found: dict[tuple[int, int], ThreadLoad] = {}
    states: dict[tuple[int, int], dict[str, int]] = {}
    leaves: dict[tuple[int, int], dict[FunctionId, int]] = {}
    for sample in profile.samples:
        labels = {label.key: label.value for label in sample.labels}
        key = (int(labels.get("pid", 0)), int(labels.get("thread_id", 0)))
        one = found.get(key)
        if one is None:
            one = ThreadLoad(*key, str(labels.get("thread_name", "")), str(labels.get("process", "")))
            found[key], states[key], leaves[key] = one, {}, {}
        one.cpu += sample.values[columns["cpu"]]
        one.wall += sample.values[columns["wall"]]
        one.gil += sample.values[columns["gil"]] if "gil" in columns else 0
        count = sample.values[columns["samples"]]
        if count:  # CPU time that no stack was seen for has no state
            state, leaf = str(labels.get("state", "")), identities.leaf(sample)
            states[key][state] = states[key].get(state, 0) + count
            leaves[key][leaf] = leaves[key].get(leaf, 0) + count
    for key, one in found.items():
        if states[key]:
            one.state = max(states[key], key=states[key].__getitem__)
            one.function = max(leaves[key], key=leaves[key].__getitem__).name
    return sorted(found.values(), key=lambda one: (-one.cpu, one.pid, one.thread_id))


def merged(profile: Profile, function: FunctionId, column: str) -> list[Branch]:
    """All stacks through `function`, merged from the root on; the heaviest by `column` first, at most MAX_LINES."""
    index = profile.index(column)
    identities = Identities()
    root = _Node()
    for sample in profile.samples:
        value = sample.values[index]
        path = list(_root_first(sample, identities)) if value else []
        if function not in path:
            continue
        node = root
        for one in path:
            node = node.below.setdefault(one, _Node())
            node.value += value
    lines: list[Branch] = []
    waiting = _children(root, 0)
    while waiting and len(lines) < MAX_LINES:
        branch, node = waiting.pop()
        lines.append(branch)
        waiting += _children(node, branch.depth + (len(node.below) > 1))
    return lines


def _children(node: _Node, depth: int) -> list[tuple[Branch, _Node]]:
    below = [(Branch(depth, function, child.value), child) for function, child in node.below.items()]
    return sorted(below, key=lambda pair: (pair[0].value, pair[0].function.name))


def _root_first(sample: Sample, identities: Identities) -> Iterator[FunctionId]:
    for location in reversed(sample.locations):
        yield from reversed(identities.of(location))
    if not sample.locations:
        yield EMPTY
