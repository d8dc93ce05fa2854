"""Runs code in another interpreter of the same process, for ever."""

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

CODE = """
def spin(count):
    value = 7
    for step in range(count):
        value = (value * 31 + step) & 0xFFFF
    return value
def key(value):
    return spin(200)
def inner():
    for _ in range(100):
        sorted((3, 1, 2), key=key)
inner()
"""


def runs(ident):
    (getattr(interpreters, "exec", None) or interpreters.run_string)(ident, CODE)


def outer(ident):
    while True:
        list(map(runs, (ident,)))


ident = interpreters.create()
print("ready", flush=True)
outer(ident)
