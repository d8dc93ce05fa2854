"""dump --locals on Windows: the variables of Python frames, as the process itself has them."""

from __future__ import annotations

import json

import pytest
from support import wine
from support.targets import TARGETS
from support.variables import expected


@pytest.mark.parametrize(
    ("version", "mode"), [*((version, "asleep") for version in wine.VERSIONS), (wine.LATEST, "running")]
)
def test_values_are_as_the_process_has_them(version: str, mode: str) -> None:
    with wine.target(version, TARGETS / "variables.py", mode, ready="") as target:
        known = json.loads(target.running.line())
        done = wine.remoteprof(version, "dump", "--locals", "--json", "--max-pause", "30s", target.pid)
        text = wine.remoteprof(version, "dump", "--locals", "--max-pause", "30s", target.pid)
    assert done.status == 0 and done.stderr == "", done.stderr
    [thread] = [one for one in json.loads(done.stdout) if "locals_read" in one]
    assert thread["locals_read"] == {"unreadable": 0, "changing": 0, "frames_left_out": 0, "over_pause": False}
    frames = [frame for frame in thread["frames"] if frame["file"].endswith("variables.py")]
    assert [frame["function"].rsplit(".", 1)[-1] for frame in frames] == [function for function, _ in known]
    for frame, (function, names) in zip(frames, known, strict=True):
        shown = {variable["name"]: variable["value"] for variable in frame["locals"]}
        if function == "<module>":
            names = {name: text for name, text in names.items() if not text.startswith("<module ")}
            shown = {name: text for name, text in shown.items() if not text.startswith("<module ")}
        assert frame["locals_left_out"] == 0
        assert shown == {name: expected(name, text) for name, text in names.items()}, function
    assert text.status == 0 and "        free     used     = 41\n" in text.stdout
