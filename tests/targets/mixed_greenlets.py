"""Greenlets that switch to and fro, started from deep inside others, for ever. Argument: a folder with greenlet."""

import sys

sys.path.insert(0, sys.argv[1])

import greenlet


def spin(count):
    value = 7
    for step in range(count):
        value = (value * 31 + step) & 0xFFFF
    return value


def key(value):
    return spin(50)


def sorts():
    return sorted((1, 2, 3), key=key)


def first():
    while True:
        sorts()
        other.switch()


def deep(count):
    if count:
        return deep(count - 1)
    return list(map(spin, (100, 50)))


def second():
    while True:
        deep(5)
        main.switch()


def starts():
    return list(map(lambda _: one.switch(), (1,)))


def nest(count):
    return nest(count - 1) if count else starts()


main = greenlet.getcurrent()
one = greenlet.greenlet(first)
other = greenlet.greenlet(second)
nest(7)
print("ready", flush=True)
while True:
    one.switch()
    spin(100)
