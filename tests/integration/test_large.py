"""A process with thousands of mappings and a binary of hundreds of megabytes of debug information. In the short form a
tenth of it. What it took is printed; asserted are counts and memory."""

from __future__ import annotations

import hashlib
import subprocess
import time
from pathlib import Path

from support import cli
from support.targets import CACHE, started

MAPPINGS = 5000 if cli.LONG else 500
SIZE = (500 if cli.LONG else 50) << 20
STRUCTS = 20_000
FUNCTIONS = 200
ADDRESSES = 1000

MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#define RUN(n) uint64_t u##n##_run(uint64_t);
UNITS
#undef RUN
#define RUN(n) u##n##_run,
static uint64_t (*const runs[])(uint64_t) = {UNITS};
int main(void) {
    char *pages = mmap(0, MAPPINGS * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < MAPPINGS; i += 2) mprotect(pages + i * 4096, 4096, PROT_READ | PROT_EXEC);
    puts("ready");
    fflush(stdout);
    for (uint64_t x = 1, i = 0;; i++) x = runs[i % (sizeof runs / sizeof *runs)](x);
}
"""


def unit() -> str:
    """Many types, and functions with inlined calls that all run."""
    lines = ["#include <stdint.h>"]
    for index in range(STRUCTS):
        before = f"struct s{index - 1} *before;" if index else ""
        lines.append(f"struct s{index} {{ int a; long b[{index % 7 + 1}]; char c; {before} int (*call)(int, long); }};")
    inline = "static inline __attribute__((always_inline)) uint64_t"
    for index in range(8):
        inner = f"in{index - 1}(x ^ {index})" if index % 4 else "x * 5"
        lines.append(f"{inline} in{index}(uint64_t x) {{\n x ^= x << {index + 3};\n x ^= x >> 7;\n return {inner};\n}}")
    for index in range(FUNCTIONS):
        lines.append(
            f"__attribute__((noinline)) static uint64_t f{index}(uint64_t x) {{\n"
            f" for (int i = 0; i < 40; i++) {{\n  x += in{index % 8}(x);\n  x ^= in{(index + 3) % 8}(x + i);\n }}\n"
            f" return x + {index};\n}}"
        )
    calls = "\n".join(f" x = f{index}(x);" for index in range(FUNCTIONS))
    lines.append(f"uint64_t run(uint64_t x) {{\n{calls}\n return x;\n}}")
    return "\n".join(lines) + "\n"


def large_program() -> Path:
    """Built once: one object, copied under other names until the program is large enough."""
    text = unit()
    key = hashlib.sha256(f"{text}{MAIN}{SIZE}{MAPPINGS}".encode()).hexdigest()[:16]
    result = CACHE / "targets" / f"large-{key}"
    if result.exists():
        return result
    folder = CACHE / "targets" / f"large-{key}.parts"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "unit.c").write_text(text)
    flags = ["-O2", "-g", "-fno-eliminate-unused-debug-types"]
    subprocess.run(["gcc", *flags, "-c", "unit.c"], cwd=folder, check=True)
    one = sum(
        int(row.split()[2], 16) if row.split()[1].startswith(".debug") else 0
        for row in subprocess.run(["objdump", "-h", "unit.o"], cwd=folder, capture_output=True, text=True).stdout.split(
            "\n"
        )
        if len(row.split()) == 7
    )
    count = SIZE // one + 1
    for index in range(count):
        subprocess.run(["objcopy", f"--prefix-symbols=u{index}_", "unit.o", f"u{index}.o"], cwd=folder, check=True)
    units = " ".join(f"RUN({index})" for index in range(count))
    (folder / "main.c").write_text(MAIN)
    objects = [f"u{index}.o" for index in range(count)]
    define = [f"-DUNITS={units}", f"-DMAPPINGS={MAPPINGS}"]
    subprocess.run(["gcc", *flags, *define, "main.c", *objects, "-o", "large"], cwd=folder, check=True)
    (folder / "large").rename(result)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return result


def test_a_large_process(tmp_path: Path) -> None:
    program = large_program()
    size = program.stat().st_size
    assert size > SIZE * 3 // 4
    with started([program]) as target:
        mappings = len(Path(f"/proc/{target.pid}/maps").read_text().splitlines())
        assert mappings > MAPPINGS
        began = time.monotonic()
        recording = cli.attach(target.pid, tmp_path, 4, 1000)
        took = time.monotonic() - began
    frames = {frame for row in recording.profile.samples for frame in row.frames if frame.address}
    addresses = {frame.address for frame in frames}
    named = {frame.address for frame in frames if frame.line and frame.file.endswith("unit.c")}
    memory = recording.stats["profiler_peak_rss_bytes"]
    print(
        f"{size >> 20} MiB, {mappings} mappings: attached in {recording.stats['attached_ms']:.0f} ms, "
        f"{len(addresses)} addresses, {took - 4:.2f} s beside the recording, memory {memory >> 20} MiB, "
        f"cpu {recording.stats['profiler_cpu_ns'] / 1e9:.2f} s"
    )
    assert len(named) >= ADDRESSES
    assert len(named) >= 0.99 * len(addresses)
    assert {f"in{index}" for index in range(8)} <= recording.profile.functions()
    assert memory <= 1 << 30
