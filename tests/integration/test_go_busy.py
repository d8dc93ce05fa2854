"""A busy net/http server that is recorded at 1 kHz: no request fails, and everything in it goes on."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support import cli, stats
from support.gobuild import build
from support.targets import Running, started, wait_until

SECONDS = 3600 if cli.LONG else 60
RATE = 1000
CLIENTS = 16


def asked(program: Running) -> Any:
    """What the program says of itself now."""
    program.send("\n")
    return json.loads(program.line())


def counts(server: Running, load: Running) -> list[int]:
    """What each goroutine of the server has done, all its answers first, and what each client has."""
    told = asked(load)
    assert told["Failed"] == 0, told
    return [*asked(server)["Counts"], *told["Requests"]]


def test_a_busy_server(tmp_path: Path) -> None:
    binary = build("gobusy")
    with (
        started([binary, "serve"]) as server,
        started([binary, "load", asked(server)["Address"], str(CLIENTS), "1ms"]) as load,
        ThreadPoolExecutor() as others,
    ):
        first = before = counts(server, load)
        recorded = others.submit(cli.attach, server.pid, tmp_path, SECONDS, RATE)
        while not recorded.done():

            def all_went_on(before: list[int] = before) -> bool:
                return all(now > then for now, then in zip(counts(server, load), before, strict=True))

            # Every client is answered, and every goroutine gets on, again and again.
            wait_until(all_went_on, "work of each of the server's goroutines, and an answer to each client")
            before = counts(server, load)
        recording = recorded.result()
        last = json.loads(load.finish())
        served = json.loads(server.finish())
    assert (load.process.returncode, server.process.returncode) == (0, 0)
    assert last["Failed"] == 0
    assert served["Counts"][0] == sum(last["Requests"]) > sum(first[-CLIENTS:])
    assert stats.faults(recording.stats, recording.profile) == []
    numbers = recording.stats
    # Its threads wait for a core, and for one of them at the end there may be no time left.
    unread = [sample.names() for sample in recording.profile.samples if sample.frames[-1].name.startswith("[unread")]
    assert all(names == ["[unreadable: did not stop before the end]"] for names in unread), unread
    assert numbers["complete"] >= 0.999 * numbers["samples"], numbers["cut"]
    names = {frame.qualified for sample in recording.profile.samples for frame in sample.frames}
    assert {"net/http.(*conn).serve", "main.handle", "main.digest", "encoding/json.(*Encoder).Encode"} <= names
