"""Python calls C calls Python calls C, in many ways, for ever. Which function may stand under which, and the C function
between them, is in tests/integration/test_mixed.py. Arguments: a folder with numpy, and
how many threads to run, 0 = wait instead."""

import ctypes
import functools
import hashlib
import json
import os
import re
import sys
import threading
import zlib

sys.path.insert(0, sys.argv[1])
# Threads of its own have no Python frames.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy

DATA = bytes(range(64))
MATRIX = numpy.arange(2500, dtype=float).reshape(50, 50)
LARGE = numpy.arange(30_000, dtype=float)
libc = ctypes.CDLL(None)
POINTER = ctypes.POINTER(ctypes.c_int)
COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER)


def spin(count):
    value = 7
    for step in range(count):
        value = (value * 31 + step) & 0xFFFF
    return value


def packs():
    return zlib.compress(DATA)


def hashes():
    return hashlib.sha256(DATA).digest()


def adds():
    return numpy.add(LARGE, LARGE)


def reduces(left, right):
    return left ^ right ^ spin(4)


def sort_key(value):
    return functools.reduce(reduces, (value, 3, 5))


def sorts():
    return sorted(range(8), key=sort_key)


class Ordered:
    def __init__(self, value):
        self.value = value

    def __lt__(self, other):
        spin(3)
        return self.value < other.value


ORDERED = [Ordered(value) for value in (5, 2, 8, 1, 9, 3)]


def orders():
    values = list(ORDERED)
    values.sort()


def compared(left, right):
    hashes()
    return left[0] - right[0]


compare = COMPARE(compared)


def quick():
    array = (ctypes.c_int * 6)(5, 3, 1, 8, 9, 2)
    libc.qsort(array, 6, 4, compare)


def replaced(match):
    packs()
    return match.group(0) * 2


def substitutes():
    return re.sub("[a-c]", replaced, "abc-abc")


def encoded(value):
    return [spin(9)]


def encodes():
    return json.dumps({"a": [1, object()], "b": object()}, default=encoded)


def numbers(count):
    for number in range(count):
        yield spin(2) + number


def delegates(count):
    yield from numbers(count)


def sums():
    return sum(delegates(6))


def plain():
    for number in delegates(3):
        spin(number & 3)


class Dropped:
    def __del__(self):
        sorts()


def drops():
    Dropped()


def mapped(value):
    plain()
    return value


def maps():
    return list(map(mapped, (1, 2)))


def applied(row):
    spin(2)
    return row[0]


def applies():
    return numpy.apply_along_axis(applied, 1, MATRIX[:3])


class Reads:
    @property
    def value(self):
        return spin(6)

    def __getattr__(self, name):
        spin(5)
        raise AttributeError(name)

    def __hash__(self):
        return spin(5)

    def __contains__(self, item):
        return spin(5) == 0

    def __call__(self):
        return spin(5)

    def __iter__(self):
        return iter((spin(4), 1))

    def __repr__(self):
        return str(spin(5))


READS = Reads()


def reads():
    READS.value  # noqa: B018
    getattr(READS, "missing", None)
    {READS: 1}  # noqa: B018
    1 in READS  # noqa: B015
    READS()
    list(READS)
    repr([READS])


def round_trip():
    sorts()
    orders()
    quick()
    substitutes()
    encodes()
    sums()
    plain()
    drops()
    maps()
    applies()
    reads()
    adds()


def work():
    while True:
        round_trip()


def waits(value):
    sys.stdin.readline()
    return value


def parks():
    return sorted((1,), key=waits)


if sys.argv[2] == "0":
    print("ready", flush=True)
    parks()
    sys.exit()
for _ in range(int(sys.argv[2]) - 1):
    threading.Thread(target=work, daemon=True).start()
round_trip()
print("ready", flush=True)
work()
