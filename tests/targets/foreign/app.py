"""Profiles of the packages for Python: app.py WRITER [PORT] writes them into the working directory."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path


def leaf(amount: int) -> int:
    return sum(number * number % 7 for number in range(amount))


def middle(amount: int) -> int:
    return leaf(amount) + leaf(amount // 2)


def work(seconds: float) -> None:
    end = time.monotonic() + seconds
    kept = []
    while time.monotonic() < end:
        middle(20_000)
        kept.append(bytearray(20_000))
        time.sleep(0.005)


def zprofile() -> None:
    from zprofile.cpu_profiler import CPUProfiler
    from zprofile.wall_profiler import WallProfiler

    wall = WallProfiler()
    wall.register_handler()
    threads = [threading.Thread(target=work, args=(2,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    Path("zprofile-cpu.pprof").write_bytes(CPUProfiler(10).profile(0.7))
    Path("zprofile-wall.pprof").write_bytes(wall.profile(0.7))
    for thread in threads:
        thread.join()


def pypprof() -> None:
    import mprofile
    from pypprof.net_http import build_heap_pprof
    from pypprof.thread_profiler import take_snapshot

    mprofile.start(sample_rate=16 << 10)
    thread = threading.Thread(target=work, args=(1,))
    thread.start()
    time.sleep(0.5)
    Path("pypprof-threads.pprof").write_bytes(take_snapshot())
    Path("pypprof-heap.pprof").write_bytes(build_heap_pprof(mprofile.take_snapshot()))
    thread.join()


def pyroscope(port: str) -> None:
    import pyroscope as client

    client.configure(
        application_name="app",
        server_address=f"http://127.0.0.1:{port}",
        oncpu=False,
        report_thread_name=True,
        upload_interval=1,
        mem_enabled=True,
        mem_heap_sample_size=16 << 10,
    )
    with client.tag_wrapper({"request": "1"}):
        work(2)
    client.shutdown()


def plain() -> None:
    work(1.5)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
