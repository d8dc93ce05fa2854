"""Frames with known variables, for `dump --locals`. Prints what it has itself as one line of JSON: for each frame, from
the innermost, its function and the repr() of each variable; then sleeps, or computes, until it is killed.

    variables.py asleep | running
"""
# ruff: noqa: F841, RUF012

import asyncio
import collections
import json
import sys
import threading


class Plain:
    """Instances have a dict that shares its keys."""

    def __init__(self, one, two):
        self.one = one
        self.two = two

    def method(self):
        return self


class Text(str):
    pass


class Number(int):
    pass


class Loud(list):
    def __repr__(self):
        return "never called by anybody outside"


class Items(dict):
    pass


class Problem(ValueError):
    pass


Point = collections.namedtuple("Point", "x y")


def function_of_module():
    pass


def generating(seed):
    yield seed


async def awaiting():
    pass


def shown(value):
    return repr(value)


def tell():
    """What the frames that called this one hold."""
    frames = []
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == __file__:
            names = {name: shown(value) for name, value in frame.f_locals.items()}
            names = {name: text for name, text in names.items() if not (name[:2] == "__" and name[-2:] == "__")}
            frames.append([frame.f_code.co_name, names])
        frame = frame.f_back
    print(json.dumps(frames), flush=True)


def wait(mode):
    tell()
    if mode == "asleep":
        sys.stdin.read()
    while True:
        pass


def containers(mode):
    empty = [(), [], {}, set(), frozenset(), bytearray()]
    nested = [(1,), (1, 2), [1, [2, [3]]], {"a": {"b": [None]}}]
    deep_cut = [[[[[[[[1]]]]]]]]
    list_cut = list(range(1000))
    dict_cut = {number: str(number) for number in range(1000)}
    strings = {"one": 1, "two": 2.5, "three": "III"}
    mixed = {1: "one", "two": 2, (3, 4): [5], None: True}
    grown = {number: number * number for number in range(40)}
    for number in range(0, 40, 3):
        del grown[number]
    first = Plain(1, "two")
    second = Plain([2], {"two": 2})
    attributes = vars(first)
    others = vars(second)
    late = vars(Plain(1, 2))
    late["three"] = 3
    less = vars(Plain(1, 2))
    del less["one"]
    keywords = (lambda **given: given)(alpha=1, beta=[2])
    numbers = {3, 1, 2, 1000, -5}
    thinned = set(range(30))
    for number in range(0, 30, 2):
        thinned.discard(number)
    frozen = frozenset([("a", 1)])
    cyclic = [1]
    cyclic.append(cyclic)
    around = {"self": None}
    around["self"] = around
    through = ([],)
    through[0].append(through)
    point = Point(1, Point("a", [2]))
    counted = collections.Counter({"b": 3, "a": 1})
    default = collections.defaultdict(list, {"k": [1]})
    ordered = collections.OrderedDict([("z", 1), ("a", [2])])
    ordered_empty = collections.OrderedDict()
    items = Items(a=1)
    loud_own = Loud([1, 2])
    queue_cut = dict.fromkeys(range(6000), 0)
    for number in range(5990):
        del queue_cut[number]
    wait(mode)


def scalars(mode):
    nothing, yes, no, dots, unknown = None, True, False, ..., NotImplemented
    integers = [0, 1, -1, 255, 257, 2**30 - 1, 2**30, -(2**30), 2**60, 2**63, -(2**64), 10**18, 3**200, -(7**300)]
    huge_cut = 1 << 5000
    negative_cut = -(1 << 5000)
    floats = [0.0, -0.0, 0.1, 1e15, 1e16, 1e22, 1e-4, 1e-5, 1.5e300, 5e-324, float("inf"), float("-inf"), 123456.789]
    not_a_number = float("nan")
    complexes = [1j, -1j, complex(1, 2), complex(-0.0, 1), complex(1.5, -0.0), complex(float("inf"), float("nan"))]
    ascii_text = "plain"
    quotes = ["'", '"', "'\"", "\\", "it's", 'say "so"']
    controls = "\0\t\n\r\x1b[31m\x7f"
    latin = "caf\xe9 \x85\xa0\xad"
    wide = "\u043b\u200b\u202e\u2028"
    wider = "\U0001f600\U000e0001"
    surrogate = "a\ud800b\udcff"
    text_cut = "ab" * 1000
    data = bytes(range(256))
    data_cut = b"\0" * 1000
    array = bytearray(b"it's")
    text, number = Text("sub'class"), Number(7)
    mode_of_all = mode
    containers(mode)


def objects(mode, *positional, key="word", **named):
    function, inner, builtin = function_of_module, lambda: None, len
    of_list, of_type = [].append, dict.fromkeys
    bound = Plain(1, 2).method
    classes = [int, Plain, collections.OrderedDict, type, Text]
    module_by_name = json
    instance, bare = Plain(1, 2), object()
    problems = [ValueError(), KeyError("key"), OSError(2, "No such file"), Problem(1, [2]), StopIteration()]
    ranges = [range(3), range(1, 10, 2), range(5, -5, -1), range(10**20)]
    slices = [slice(None), slice(1, 2), slice("a", None, -1)]
    generator, coroutine = generating(1), awaiting()
    of_thread, iterator = threading.local(), iter([1])
    unbound = 1
    del unbound
    scalars(mode)


def enclosing(mode, used):
    local, shared = "local", [1]

    def inner(argument):
        mine = argument
        shared.append(used)
        objects(mode, 1, "two", key=None, extra={"x": 1})
        return mine

    inner("of inner")
    return local


def comprehension(mode):
    outside = "outside"
    return [enclosing(mode, used) for used in (41, 42)]


def generate(mode):
    before = "before"
    yield comprehension(mode)
    yield before


async def asynchronous(mode):
    await asyncio.sleep(0)
    awaited = [1.5]
    for item in generate(mode):
        awaited.append(item)


MODE = sys.argv[1]


class Body:
    in_body = {"of": "the class"}
    asyncio.run(asynchronous(MODE))
