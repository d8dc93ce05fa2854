"""Python calls C calls Python, for ever, on Windows; what stands under what is in tests/windows/test_wine_native.py."""

import ctypes
import functools
import re

runtime = ctypes.CDLL("msvcrt.dll")
POINTER = ctypes.POINTER(ctypes.c_int)
COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER)


def spin(count):
    value = 7
    for step in range(count):
        value = (value * 31 + step) & 0xFFFF
    return value


def reduces(left, right):
    return left ^ right ^ spin(20)


def sort_key(value):
    return functools.reduce(reduces, (value, 3, 5))


def sorts():
    return sorted(range(8), key=sort_key)


def compared(left, right):
    return left[0] - right[0] + 0 * spin(20)


compare = COMPARE(compared)


def quick():
    numbers = (ctypes.c_int * 8)(5, 2, 8, 1, 9, 3, 7, 4)
    runtime.qsort(numbers, 8, ctypes.sizeof(ctypes.c_int), compare)


def replaced(match):
    return str(spin(20) & 1) + match.group()


def substitutes():
    return re.sub("[a-d]", replaced, "abcdefgh")


print("ready", flush=True)
while True:
    sorts()
    quick()
    substitutes()
