"""Threads parked at known stacks; one JSON line says what each thread's own interpreter sees."""
import asyncio, functools, json, os, sys, threading, time


def gettid():
    return threading.get_native_id()


def park(ready):
    ready.append(gettid()); time.sleep(1000)


class Method:
    def run(self, ready):
        return self.again(ready)

    @classmethod
    def deeper(cls, ready):
        # a multi-line call: the line is that of the call, whatever the version says
        return list(map(
            lambda x: park(x),
            [ready],
        ))

    def again(self, ready):
        try:
            return sorted([2, 1], key=lambda _:
                          self.deeper(ready))
        finally:
            pass


def generator(ready):
    yield 1
    for x in inner(ready):
        yield x


def inner(ready):
    yield from [2]
    with threading.Lock():
        park(ready)
    yield 3


def generators(ready):
    for _ in generator(ready):
        pass


async def coroutine(depth, ready):
    if depth == 0:
        park(ready)
    await coroutine(depth - 1, ready)


async def agen(ready):
    yield 1
    park(ready)


async def asyncs(ready):
    async for _ in agen(ready):
        pass


def recursion(depth, ready):
    if depth:
        return recursion(depth - 1, ready)
    return park(ready)


class Dying:
    def __init__(self, ready):
        self.ready = ready

    def __del__(self):
        park(self.ready)


def destructor(ready):
    dying = Dying(ready)
    del dying


class Init:
    def __init__(self, ready):
        park(ready)


def closure(ready):
    @functools.lru_cache(None)
    def naïve_функция():
        exec("\n\n\npark(ready)", {"park": park, "ready": ready})
    naïve_функция()


def comprehension(ready):
    return [[park(r) for r in [ready]] for _ in range(3)]


CASES = [
    lambda r: Method().run(r),
    generators,
    lambda r: asyncio.new_event_loop().run_until_complete(coroutine(5, r)),
    lambda r: asyncio.new_event_loop().run_until_complete(asyncs(r)),
    lambda r: recursion(30, r),
    lambda r: recursion(600, r),
    destructor,
    lambda r: Init(r),
    closure,
    comprehension,
    lambda r: eval("park(r)", {"park": park, "r": r}),
    lambda r: max([1], key=lambda _: next(inner2(r))),
]


def inner2(ready):
    yield from (park(r) for r in [ready])


def stack(frame):
    frames = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        frames.append([name, code.co_filename, code.co_firstlineno, frame.f_lineno or 0])
        frame = frame.f_back
    return frames


def report(idents):
    current = sys._current_frames()
    threads = [{"tid": tid, "frames": stack(current[ident])} for ident, tid in idents.items()]
    threads.append({"tid": gettid(), "frames": stack(sys._getframe(1))})
    print(json.dumps({"threads": threads}), flush=True)


def main():
    threading.stack_size(16 << 20)
    sys.setrecursionlimit(100000)
    idents = {}
    for case in CASES:
        ready = []
        thread = threading.Thread(target=case, args=(ready,), daemon=True)
        thread.start()
        while not ready:
            time.sleep(0.001)
        idents[thread.ident] = ready[0]
    time.sleep(0.1)
    report(idents); time.sleep(1000)


main()
