"""dump --locals: the variables of Python frames, as the process itself has them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator

import pytest
from support import cli
from support.targets import Running, interpreter, program, started, wait_until
from support.terminal import terminal
from support.variables import expected

from remoteprof.profile.stacks import Frame, ThreadStack
from remoteprof.session import Session, dump, look_once, thread_stacks_of
from remoteprof.text import printable
from remoteprof.tree import dump_tree

DUMPS = 200

Known = list[tuple[str, dict[str, str]]]


@pytest.fixture(params=["asleep", "running"])
def variables(version: str, request: pytest.FixtureRequest) -> Iterator[tuple[Running, Known]]:
    """The program, and what it says that its frames hold."""
    with started(program("variables.py", request.param, version=version), ready="") as target:
        known = [(function, names) for function, names in json.loads(target.line())]
        if request.param == "asleep":
            wait_until(lambda: "S" in target.status()["State"], "that it sleeps")
        yield target, known


def own(stack: ThreadStack) -> list[Frame]:
    """The frames of the program itself."""
    return [frame for frame in stack.frames if frame.file.endswith("variables.py")]


def test_values_are_as_the_process_has_them(variables: tuple[Running, Known]) -> None:
    target, known = variables
    [stack] = dump(target.pid, locals=True, max_pause=5)
    frames = own(stack)
    assert stack.reading is not None and not stack.reading.shortcomings
    # `tell` has returned since, and the list of a comprehension up to 3.11 is a frame of its own in both.
    assert [frame.function.rsplit(".", 1)[-1] for frame in frames] == [function for function, _ in known]
    for frame, (function, names) in zip(frames, known, strict=True):
        assert frame.locals is not None and frame.locals.left_out == 0, function
        shown = {variable.name: variable.value for variable in frame.locals.variables}
        if function == "<module>":
            # They go on to change after they were told: the class is not made yet, both times.
            names = {name: text for name, text in names.items() if not text.startswith("<module ")}
            shown = {name: text for name, text in shown.items() if not text.startswith("<module ")}
        assert shown == {name: expected(name, text) for name, text in names.items()}, function
        cut = {variable.name for variable in frame.locals.variables if variable.cut}
        assert cut == {name for name in names if name.endswith("_cut")}, function


def test_kinds_and_types(variables: tuple[Running, Known]) -> None:
    target, _ = variables
    [stack] = dump(target.pid, locals=True, max_pause=5)
    found = {
        frame.function.rsplit(".", 1)[-1]: {variable.name: (variable.kind, variable.type) for variable in of.variables}
        for frame in own(stack)
        if (of := frame.locals) is not None
    }
    objects = found["objects"]
    assert {name: objects[name] for name in ("mode", "positional", "key", "named", "classes", "instance")} == {
        "mode": ("argument", "str"),
        "positional": ("argument", "tuple"),
        "key": ("argument", "NoneType"),
        "named": ("argument", "dict"),
        "classes": ("local", "list"),
        "instance": ("local", "__main__.Plain"),
    }
    assert "unbound" not in objects
    assert found["enclosing"] == {
        "mode": ("argument", "str"),
        "used": ("argument", "int"),
        "local": ("local", "str"),
        "shared": ("cell", "list"),
        "inner": ("local", "function"),
    }
    assert found["inner"] == {
        "argument": ("argument", "str"),
        "mine": ("local", "str"),
        "mode": ("free", "str"),
        "used": ("free", "int"),
        "shared": ("free", "list"),
    }
    assert found["Body"]["in_body"] == ("local", "dict")
    assert found["<module>"]["Plain"] == ("global", "type") and found["<module>"]["MODE"] == ("global", "str")
    assert found["containers"]["point"] == ("local", "__main__.Point")
    assert found["containers"]["default"] == ("local", "collections.defaultdict")


def test_json_text_and_tree(variables: tuple[Running, Known]) -> None:
    target, known = variables
    pause = ("--max-pause", "5s")
    result = cli.remoteprof("dump", "--locals", "--json", *pause, target.pid)
    assert result.status == 0 and result.stderr == "" and result.stdout.isascii()
    [thread] = json.loads(result.stdout)
    assert thread["locals_read"] == {"unreadable": 0, "changing": 0, "frames_left_out": 0, "over_pause": False}
    told = [frame for frame in thread["frames"] if frame["file"].endswith("variables.py")]
    assert told[0]["locals"] == [
        {"name": "mode", "kind": "argument", "value": known[0][1]["mode"], "type": "str", "cut": False}
    ]
    assert told[0]["locals_left_out"] == 0
    assert all("locals" not in frame for frame in thread["frames"] if frame["module"])

    result = cli.remoteprof("dump", "--locals", *pause, target.pid)
    assert result.status == 0 and result.stderr == ""
    lines = result.stdout.splitlines()
    assert all(len(line) <= 200 for line in lines if line.startswith("        "))
    assert all(line.isprintable() for line in lines)
    at = next(index for index, line in enumerate(lines) if re.match(r"    (\S+\.)?inner \(", line))
    assert lines[at + 1 : at + 6] == [
        "        argument argument = 'of inner'",
        "        local    mine     = 'of inner'",
        "        free     mode     = " + known[0][1]["mode"],
        "        free     shared   = [1, 41]",
        "        free     used     = 41",
    ]
    assert "\n        global   MODE" in result.stdout

    result = cli.remoteprof("dump", "--locals", "--children", *pause, target.pid)
    assert result.status == 0 and "\n          free     used     = 41\n" in result.stdout
    [process] = dump_tree(target.pid, locals=True, max_pause=5)
    assert [frame.locals is not None for frame in own(process.stacks[0])] == [True] * len(known)
    # Nothing is read where nothing was asked for.
    [stack] = dump(target.pid)
    assert stack.reading is None and all(frame.locals is None for frame in stack.frames)


def test_a_pause_that_is_too_short_is_said(version: str) -> None:
    with started(program("variables.py", "running", version=version), ready="") as target:
        target.line()
        [stack] = dump(target.pid, locals=True, max_pause=1e-6)
        assert stack.reading is not None and stack.reading.over_pause
        assert stack.reading.frames_left_out > 0
        result = cli.remoteprof("dump", "--locals", "--max-pause", "1us", target.pid)
        assert result.status == 0
        assert re.search(r"\[not all variables of \d+ frames were read: the longest pause was over\]", result.stdout)
        assert sum(frame.file.endswith("variables.py") for frame in stack.frames) > 8


def test_changing_containers(version: str) -> None:
    """What one thread changes all the time is shown as what it is, of that thread and of one that sleeps."""
    command = program("changing.py", version=version)
    quiet = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    kinds = {
        "numbers": {"list"},
        "names": {"list"},
        "table": {"dict"},
        "members": {"set"},
        "rounds_left": {"list"},
        "checksum": {"int"},
        "rounds": {"int"},
        "name": {"str"},
        "text": {"str"},
        "pair": {"tuple"},
        "number": {"int"},
        "thread": {"threading.Thread"},
    }
    shapes = {
        "numbers": r"\[(\d+, )*(\d+|… \d+ more)?\]",
        "names": r"\[('name \d+', )*('name \d+'|… \d+ more)?\]",
        "members": r"\{\d+(, \d+)*(, … \d+ more)?\}|set\(\)",
        "table": r"\{('name \d+': \(\d+, \['name \d+'\], \{'round': \d+\}\)(, |(?=\})))*(… \d+ more)?\}",
        "checksum": r"\d+",
        "rounds": r"\d+",
        "number": r"\d+",
        "name": r"'name \d+'",
        "text": r"'(name \d+)*'",
        "pair": r"\(\d+\.0, '(name \d+)*'\)",
        "thread": r"<threading\.Thread object at 0x[0-9a-f]+>",
        "rounds_left": r"\[True\]",
    }
    known = re.compile(r"'(name \d+)*'|'round'|\d+(\.0)?|… \d+ more|None|True|[][(){}:, ]")
    unreadable = changing = read = strays = 0
    with started(command) as target:
        session = None
        for _ in range(DUMPS):
            following = Session(look_once(True, True, 1.0), after=session)
            session = following
            session.attach(target.pid)
            session.start()
            for stack in thread_stacks_of(session.run(modules=False), False):
                if stack.reading is None:
                    # A crowded machine: the thread had no core before the end, and has no frames.
                    assert [frame.function for frame in stack.frames] == ["[unreadable: did not stop before the end]"]
                    continue
                unreadable += stack.reading.unreadable
                changing += stack.reading.changing
                for frame in stack.frames:
                    if frame.locals is None or not frame.file.endswith("changing.py"):
                        continue
                    for variable in frame.locals.variables:
                        if variable.name not in kinds:
                            continue
                        read += 1
                        if "<unreadable>" in variable.value:
                            assert stack.reading.unreadable
                            continue
                        assert variable.type in kinds[variable.name], variable
                        if variable.value == f"<{variable.type}, changing>":
                            # Where another core changes it every microsecond, no two readings are the same.
                            assert variable.type in ("list", "dict", "set"), variable
                            continue
                        if not re.fullmatch(shapes[variable.name], variable.value):
                            # list.insert() and its like make room first: until they fill it, there is an old item.
                            assert variable.type in ("list", "dict", "set"), variable
                            assert not known.sub("", variable.value), variable
                            strays += 1
        assert session is not None
        session.close()
        assert "ready\n" + target.finish() == quiet.stdout
    # It is the exception that something cannot be read; what changes faster than it is read is told as that.
    assert read > DUMPS * 8 and unreadable < read / 20, (read, unreadable, changing)
    assert changing < read / 2, (read, changing)
    assert strays < read / 200, (read, strays)


HOSTILE = r"""
import sys


def hostile(argument):
    text = "\x1b]0;owned\x07\u202e\u2066" + "\udcff"
    table = {"\x1b[2J": "\r\n"}
    Evil = type("\x1b[31mE\u202e", (), {"__module__": "\n\x1b[0m"})
    instance = Evil()

    def function():
        pass

    function.__qualname__ = "\x1b[5m\u2067"
    long_name, wide = "l" * 300, "\u4e2d"
    source = "def inner():\n %s = 1\n %s = '%s'\n print('ready', flush=True)\n sys.stdin.read()"
    scope = {"sys": sys, "\x1b[7m\u202e": 1}
    exec(compile(source % (long_name, wide, wide * 250), "\x1b[1m", "exec"), scope)
    exec("inner()", scope)


hostile(1)
"""


def test_hostile_names_and_values(version: str) -> None:
    """Nothing that a program names or holds steers a terminal; lines stay as wide as it is, and have colours there."""
    with started([interpreter(version), "-c", HOSTILE]) as target:
        wait_until(lambda: "S" in target.status()["State"], "that it sleeps")
        result = cli.remoteprof("dump", "--locals", "--no-native", target.pid)
        assert result.status == 0
        assert all(line.isprintable() for line in result.stdout.splitlines())
        assert "text      = '\\x1b]0;owned\\x07\\u202e\\u2066\\udcff'" in result.stdout
        assert "{'\\x1b[2J': '\\r\\n'}" in result.stdout
        assert "<\\x0a\\x1b[0m.\\x1b[31mE\\u202e object at 0x" in result.stdout
        assert "global   \\x1b[7m\\u202e = 1" in result.stdout
        told = json.loads(cli.remoteprof("dump", "--locals", "--no-native", "--json", target.pid).stdout)
        for frame in told[0]["frames"]:
            assert all(printable(text) == text for local in frame["locals"] for text in map(str, local.values()))
        with terminal(f"locals-{version}") as shown:
            command = [cli.COMMAND, "dump", "--locals", "--no-native", target.pid]
            shown.start(command, 80, 60, [f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}"])
            lines = shown.shows("ended: 0")
            # None is wrapped: each line of the process's stack is one of the screen.
            assert sum("inner (" in line or "hostile (" in line for line in lines) == 2
            assert all(re.match(r"    \S|        (argument|local|global|…) ", line) for line in stack_of(lines))
            assert any("\x1b[36m" in line for line in shown.screen(escapes=True))


def stack_of(screen: list[str]) -> list[str]:
    """The lines of the first thread."""
    at = next(index for index, line in enumerate(screen) if line.startswith("thread "))
    end = next(index for index, line in enumerate(screen) if line.startswith("ended: "))
    return screen[at + 1 : end]
