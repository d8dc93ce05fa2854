"""The generated programs of support/native.py as C, C++ and Rust text, with what is legal in them. What is the same in
all of them is in tests/targets/native/legal.c and legal.rs."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from support.native import ANY, DEEP, TURNS, Function, Legal, graph

C_KINDS = ("plain", "pointer", "large", "alloca", "aligned", "recursive", "callback", "doubles", "many", "variadic")
C_LEAVES = ("bare", "busy", "buffer", "tiny", "doubles")
CXX_KINDS = (*C_KINDS, "virtual", "template", "lambda", "function", "catching", "destructor")
CXX_LEAVES = ("bare", "throwing", "buffer", "tiny", "deep")
RUST_KINDS = ("plain", "pointer", "large", "recursive", "callback", "dynamic", "closure", "generic", "doubles", "many")
RUST_LEAVES = ("bare", "busy", "buffer", "tiny", "string")


@dataclass
class Text:
    lines: list[str] = field(default_factory=list)

    def add(self, text: str) -> int:
        self.lines.append(text)
        return len(self.lines)

    def whole(self) -> str:
        return "\n".join(self.lines) + "\n"


class Writer(ABC):
    """Writes functions callees first."""

    def __init__(self, seed: int) -> None:
        self.out = Text()
        self.legal = Legal()
        self.rng = random.Random(seed)
        self.tails: list[tuple[str, str]] = []

    def write(self, chains: list[Function]) -> tuple[str, Legal]:
        for index, first in enumerate(chains):
            path = [first]
            while path[-1].children:
                path.append(path[-1].children[0])
            for leaf in path[-2].children:
                self.function(leaf)
            for function in reversed(path[:-1]):
                self.function(function)
            if index < DEEP:
                self.root(f"entry{index}", first, "for (;;) ")
            else:
                self.outside(index, first)
        # Outermost first: what may seem to have called the caller is known by then.
        self.legal.close_tails(self.tails[::-1])
        return self.out.whole(), self.legal

    def outside(self, index: int, first: Function) -> None:
        """A chain that is entered from text that is not generated, through `runN`."""
        callers = {4: ("on_alarm", "on_profile"), 5: ("on_nested",), 6: ("entry_jit", "on_call", "on_other")}
        for caller in callers[index]:
            self.legal.add(f"run{index}", caller, ANY)
        self.legal.callbacks.add(f"run{index}")
        self.root(f"run{index}", first, "")

    @abstractmethod
    def function(self, function: Function) -> None:
        """A function with all that it calls."""

    @abstractmethod
    def root(self, name: str, first: Function, loop: str) -> None:
        """The function that enters a chain, once or for ever."""


class CWriter(Writer):
    """C, and what C++ has in common with it."""

    def head(self, function: Function) -> str:
        name, kind = function.name, function.kind
        if kind == "callback":
            return f"KNOWN int {name}(const void *left, const void *right) {{"
        if kind == "doubles" and function.children:
            return f"KNOWN double {name}(double y, int d) {{"
        if kind == "many":
            return f"KNOWN word {name}(word a, word b, word c, word e, word f, word g, word x, int d) {{"
        if kind == "variadic":
            return f"KNOWN word {name}(int d, ...) {{"
        return f"KNOWN word {name}(word x, int d) {{"

    def call(self, callee: Function) -> str:
        """The expression, of type word."""
        name, kind = callee.name, callee.kind
        if kind == "callback":
            return f"sorted({name}, x)"
        if kind == "doubles" and callee.children:
            return f"(word){name}((double)(x & 0xffff), {TURNS})"
        if kind == "many":
            return f"{name}(x, x + 1, x + 2, x + 3, x + 4, x + 5, x, {TURNS})"
        if kind == "variadic":
            return f"{name}({TURNS}, x, 1.5)"
        if kind == "pointer":
            return f"pointer_{name}(x, {TURNS})"
        return f"{name}(x, {TURNS})"

    def opening(self, function: Function) -> None:
        kind, number = function.kind, self.rng.randint(3, 999)
        body = {
            "callback": "word x = *(const word *)left + *(const word *)right; int d = 1; (void)d;",
            "doubles": "word x = (word)(y * 1.5); (void)d;" if function.children else "(void)d;",
            "many": "x += a ^ b ^ c ^ e ^ f ^ g; (void)d;",
            "variadic": "va_list rest; va_start(rest, d); word x = va_arg(rest, word); va_end(rest);",
            "large": f"volatile word room[{number + 400}]; room[x % 400] = x; x += room[x % 300]; (void)d;",
            "alloca": "volatile char *room = (volatile char *)alloca(x % 500 + 16); room[0] = (char)x; x += room[0];",
            "aligned": "volatile word wide[8] __attribute__((aligned(64))); wide[x % 8] = x; x += wide[x % 7];",
        }.get(kind, "(void)d;")
        self.out.add("    " + body)
        self.out.add(f"    x = x * {number} + {number % 17};")

    def closing(self, function: Function) -> int:
        self.out.add(f"    x += {self.rng.randint(1, 99)};")
        if function.kind == "callback":
            self.out.add("    sink = x;")
            self.out.add("    return (int)(x & 1);")
        elif function.kind == "doubles" and function.children:
            self.out.add("    return (double)(x & 0xffff) + 0.5;")
        else:
            self.out.add("    return x;")
        return self.out.add("}")

    def function(self, function: Function) -> None:
        self.out.add("")
        first = self.out.add(self.head(function))
        self.opening(function)
        if not function.children:
            self.leaf(function)
        children = function.children
        if function.kind == "recursive":
            line = self.out.add(f"    if (d > 0) return {function.name}(x + 1, d - 1) + 1;")
            self.legal.add(function.name, function.name, line)
        for child in children:
            tail = function.tail and child is children[-1] and self.plain(function) and self.plain(child)
            self.child(function, child, tail)
            if tail:
                self.tails.append((function.name, child.name))
        last = self.closing(function)
        self.legal.lines[function.name] = (first, last)
        if function.kind == "callback":
            self.legal.callbacks.add(function.name)
        if function.kind == "pointer":
            self.out.add(f"static word (*volatile pointer_{function.name})(word, int) = {function.name};")

    def plain(self, function: Function) -> bool:
        return function.kind in ("plain", "pointer", "alloca", "large") or not function.children

    def child(self, function: Function, child: Function, tail: bool) -> None:
        if tail:
            line = self.out.add(f"    return {self.call(child)};")
        else:
            line = self.out.add(f"    x += {self.call(child)};")
        self.legal.add(child.name, function.name, line)

    def leaf(self, function: Function) -> None:
        turns = self.rng.randint(20, 160)
        body = {
            "bare": f"for (int i = 0; i < {turns}; i++) x = x * 31 + (x >> 7);",
            "busy": f"word a = x, b = ~x, c = x * 3; for (int i = 0; i < {turns}; i++)"
            " { a ^= b << 3; b += c >> 5; c ^= a; } x = a + b + c;",
            "buffer": f"char room[200]; memset(room, (int)x, sizeof room); for (int i = 0; i < {turns}; i++)"
            " x += (word)room[(x + (word)i) % 200];",
            "doubles": f"double y = (double)(x & 255); for (int i = 0; i < {turns}; i++) y = y * 0.5 + 1;"
            " x += (word)y;",
        }.get(function.kind, "")
        if body:
            self.out.add("    " + body)

    def root(self, name: str, first: Function, loop: str) -> None:
        self.out.add("")
        start = self.out.add(f"KNOWN word {name}(word x) {{")
        line = self.out.add(f"    {loop}{{ x += {self.call(first)}; sink = x; }}")
        self.out.add("    return x;")
        self.legal.add(first.name, name, line)
        self.legal.lines[name] = (start, self.out.add("}"))


class CxxWriter(CWriter):
    """C++: virtual functions, templates, lambdas, exceptions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.legal.landing_pads = True

    def head(self, function: Function) -> str:
        if function.kind == "virtual":
            return f"struct {function.name} final : step {{ KNOWN word run(word x, int d) override {{"
        if function.kind == "template":
            return f"template <class T> KNOWN word {function.name}(word x, int d) {{"
        return super().head(function)

    def call(self, callee: Function) -> str:
        name, kind = callee.name, callee.kind
        if kind == "virtual":
            return f"pointer_{name}->run(x, {TURNS})"
        if kind == "template":
            types = f"list<numbered<{self.rng.randint(1, 99)}, list<word>>, std::vector<std::string>>"
            return f"{name}<{types}>(x, {TURNS})"
        if kind == "lambda":
            return f"[&](word y) {{ return {name}(y + x, {TURNS}) + 1; }}(x)"
        if kind == "function":
            return f"function_{name}(x, {TURNS})"
        return super().call(callee)

    def opening(self, function: Function) -> None:
        super().opening(function)
        if function.kind == "destructor":
            self.out.add("    guard guarded(&x);")
        if function.kind == "throwing":
            self.out.add("    if (x % 64 == 0) throw x;")
        if function.kind == "deep":
            self.out.add("    x += deep<40>::run(x);")

    def child(self, function: Function, child: Function, tail: bool) -> None:
        if function.kind == "catching":
            line = self.out.add(f"    try {{ x += {self.call(child)}; }} catch (word thrown) {{ x += thrown + 1; }}")
            self.legal.add(child.name, function.name, line)
        else:
            super().child(function, child, tail)
            line = len(self.out.lines)
        if child.kind == "lambda":
            self.legal.add(function.name, function.name, line)
            self.legal.callbacks.add(child.name)

    def closing(self, function: Function) -> int:
        last = super().closing(function)
        name = function.name
        if function.kind == "virtual":
            self.out.add("};")
            self.out.add(f"static step *volatile pointer_{name} = new {name}();")
        if function.kind == "function":
            self.out.add(f"static std::function<word(word, int)> function_{name} = {name};")
            self.legal.callbacks.add(name)
        return last

    def root(self, name: str, first: Function, loop: str) -> None:
        if not loop:
            super().root(name, first, loop)
            return
        super().root(name, first, loop + "try ")
        self.out.lines[-3] += " catch (word thrown) { x += thrown + 1; }"


class RustWriter(Writer):
    """Rust: trait objects, closures, generics, slices' comparators."""

    def head(self, function: Function) -> str:
        name = function.name
        if function.kind == "dynamic":
            return (
                f"mod {name} {{ use super::*; pub struct Of; impl Step for Of {{ #[inline(never)]"
                " fn run(&self, mut x: u64, d: u32) -> u64 {"
            )
        if function.kind == "generic":
            return f"#[inline(never)] fn {name}<T: Into<u64> + Copy>(t: T, d: u32) -> u64 {{ let mut x: u64 = t.into();"
        if function.kind == "doubles":
            return f"#[inline(never)] fn {name}(y: f64, d: u32) -> f64 {{ let mut x = y as u64;"
        if function.kind == "many":
            names = "a: u64, b: u64, c: u64, e: u64, f: u64, g: u64, mut x: u64, d: u32"
            return f"#[inline(never)] fn {name}({names}) -> u64 {{ x ^= a ^ b ^ c ^ e ^ f ^ g;"
        return f"#[inline(never)] fn {name}(mut x: u64, d: u32) -> u64 {{"

    def call(self, callee: Function) -> str:
        name, kind = callee.name, callee.kind
        return {
            "pointer": f"black_box({name} as fn(u64, u32) -> u64)(x, {TURNS})",
            "callback": f"sorted(x, &mut |y| {name}(y, {TURNS}))",
            "dynamic": f"black_box(&{name}::Of as &dyn Step).run(x, {TURNS})",
            "closure": f"boxed(Box::new(move |y| {name}(y, {TURNS})), x)",
            "generic": f"{name}(x as u32, {TURNS})",
            "doubles": f"({name}(x as f64, {TURNS}) as u64)",
            "many": f"{name}(x, x ^ 1, x ^ 2, x ^ 3, x ^ 4, x ^ 5, x, {TURNS})",
        }.get(kind, f"{name}(x, {TURNS})")

    def function(self, function: Function) -> None:
        name, kind, number = function.name, function.kind, self.rng.randint(3, 999)
        self.out.add("")
        first = self.out.add(self.head(function))
        if kind == "large":
            self.out.add(f"    let room = black_box([x; {number + 300}]); x ^= room[(x % 300) as usize];")
        self.out.add(f"    x = x.wrapping_mul({number}).wrapping_add(d as u64);")
        if kind == "recursive":
            line = self.out.add(f"    if d > 0 {{ return {name}(x ^ 1, d - 1) ^ 1; }}")
            self.legal.add(name, name, line)
        if not function.children:
            self.leaf(function)
        for child in function.children:
            line = self.out.add(f"    x ^= {self.call(child)};")
            self.legal.add(child.name, name, line)
            if child.kind in ("callback", "closure"):
                self.legal.add(name, name, line)
                self.legal.callbacks |= {name, child.name}
            if child.kind == "pointer":
                self.legal.callbacks.add(child.name)
        self.out.add(f"    x ^= {self.rng.randint(1, 99)};")
        self.out.add("    black_box(x);")
        self.out.add("    x as f64" if kind == "doubles" else "    x")
        last = self.out.add("} } }" if kind == "dynamic" else "}")
        self.legal.lines[name] = (first, last)

    def leaf(self, function: Function) -> None:
        turns = self.rng.randint(20, 160)
        body = {
            "bare": f"for i in 0..{turns} {{ x = x.wrapping_mul(31) ^ (x >> 7) ^ i; }}",
            "busy": f"let (mut a, mut b) = (x, !x); for i in 0..{turns} {{ a ^= b << 3; b ^= a >> 5 ^ i; }} x = a ^ b;",
            "buffer": f"let room = black_box([x as u8; 200]);"
            f" for i in 0..{turns} {{ x ^= room[(x ^ i) as usize % 200] as u64; }}",
            "string": 'x ^= black_box(format!("{x} {d}")).len() as u64;',
        }.get(function.kind, "")
        if body:
            self.out.add("    " + body)

    def root(self, name: str, first: Function, loop: str) -> None:
        self.out.add("")
        start = self.out.add(f"#[inline(never)] pub fn {name}(mut x: u64) -> u64 {{")
        line = self.out.add(f"    {'loop ' if loop else ''}{{ x ^= {self.call(first)}; black_box(x); }}")
        self.out.add("}" if loop else "    x }")
        self.legal.add(first.name, name, line)
        self.legal.lines[name] = (start, len(self.out.lines))


def c(seed: int) -> tuple[str, Legal]:
    """A C program."""
    return CWriter(seed).write(graph(seed, C_KINDS, C_LEAVES, ("callback",)))


def cxx(seed: int) -> tuple[str, Legal]:
    """A C++ program."""
    return CxxWriter(seed).write(graph(seed, CXX_KINDS, CXX_LEAVES, ("callback",)))


def rust(seed: int) -> tuple[str, Legal]:
    """A Rust program."""
    return RustWriter(seed).write(graph(seed, RUST_KINDS, RUST_LEAVES, ("callback", "closure")))
