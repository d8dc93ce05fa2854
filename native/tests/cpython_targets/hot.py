"""A hot program in which every function has one legal caller line, told by its name: f{k}__{caller}__{line}."""
import sys, tempfile

DEPTH = 40
source = ["import itertools"]
names = {}


def define(k, kind):
    line = len(source) + 1
    callee = "f%d" % (k + 1) if k + 1 < DEPTH else None
    body = {
        "leaf": ["    s = 0", "    for i in range(50): s += i", "    return s"],
        "plain": ["    x = 1", "    @", "    return x"],
        "generator": ["    yield 1", "    @", "    yield 2"],
        "callback": ["    x = 1", "    sorted([1], key=lambda _, f=None: 1)", "    @", "    return x"],
        "closed": ["    def g(): return x", "    x = 1", "    @", "    return g()"],
    }[kind]
    calls = "list({0}())" if kinds[k + 1] == "generator" else "{0}()"
    if kind == "callback":
        calls = "max([0], key=%s)" % ("lambda_%s" % callee) if False else calls
    at = None
    source.append("def f%d%s():" % (k, "@NAME%d@" % k))
    for text in body:
        if text.strip() == "@":
            at = len(source) + 1
            text = "    " + calls.format("f%d@NAME%d@" % (k + 1, k + 1)) if callee else "    pass"
        source.append(text)
    names[k + 1] = "__%d__%d" % (k, at or 0)


cycle = ["plain", "generator", "closed", "callback", "plain", "generator", "generator", "plain"]
kinds = [cycle[i % len(cycle)] for i in range(DEPTH - 1)] + ["leaf", "leaf"]
kinds[0] = "plain"
names[0] = "__base__0"
for k in range(DEPTH):
    define(k, kinds[k])
text = "\n".join(source)
for k in range(DEPTH + 1):
    text = text.replace("@NAME%d@" % k, names.get(k, ""))
scope = {}
exec(compile(text, "hot", "exec"), scope)
run = scope["f0" + names[0]]
print("ready", flush=True)
while True:
    run()
