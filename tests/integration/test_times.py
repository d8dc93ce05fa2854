"""--times: samples that keep their time, and the Firefox Profiler's format, which shows it."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from support import cli, stats
from support.gotool import go_pprof
from support.targets import program, started

PHASES = ("morning", "noon", "evening")


def test_samples_keep_their_time(tmp_path: Path) -> None:
    output, numbers = tmp_path / "times.pb.gz", tmp_path / "stats.json"
    with started(program("phases.py")) as target:
        options = ("-r", 500, "-d", "20s", "--times", "-o", output, "--stats", numbers)
        process = cli.begin("attach", target.pid, *options)
        assert target.process.stdin is not None
        target.process.stdin.write("go\n")
        lines = [target.line().split() for _ in PHASES]
        _, errors = process.communicate(timeout=120)
    recording = cli.read_recording(cli.Result(process.returncode, "", errors), output, numbers)
    profile = recording.profile
    assert stats.faults(recording.stats, profile) == []
    timed = [sample for sample in profile.samples if "time" in sample.labels]
    rest = [sample for sample in profile.samples if "time" not in sample.labels]
    assert {sample.frames[-1].name for sample in rest} <= {"[unsampled]"}
    end = profile.time_ns + profile.duration_ns
    assert all(profile.time_ns <= int(sample.labels["time"]) <= end for sample in timed)
    for name, began, ended in lines:
        inside = [sample for sample in timed if name in {frame.name for frame in sample.frames}]
        middle = median(int(sample.labels["time"]) for sample in inside)
        assert int(began) <= middle <= int(ended), name
        # Running samples stand alone; of a thread that sleeps on, the first has all ticks.
        assert len(inside) > 100 or name == "noon"
    noon = [sample for sample in timed if "noon" in {frame.name for frame in sample.frames}]
    assert sum(sample.values["samples"] for sample in noon) > 10 * len(noon)
    assert "evening" in go_pprof("-top", output)

    converted = cli.remoteprof("convert", output, "-o", tmp_path / "times.gecko.json")
    assert converted.status == 0, converted.stderr
    document = json.loads((tmp_path / "times.gecko.json").read_text(encoding="utf-8"))
    [thread] = [one for one in document["threads"] if one["isMainThread"]]
    samples, shared = thread["samples"], document["shared"]
    assert samples["time"] == sorted(samples["time"])
    start = document["meta"]["startTime"]
    names = shared["stringArray"]
    for name, began, ended in lines:
        times = []
        for time, stack in zip(samples["time"], samples["stack"], strict=True):
            frames = set()
            while stack is not None:
                frame = shared["stackTable"]["frame"][stack]
                frames.add(names[shared["funcTable"]["name"][shared["frameTable"]["func"][frame]]])
                stack = shared["stackTable"]["prefix"][stack]
            if name in frames:
                times.append(start + time)
        assert int(began) / 1e6 <= median(times) <= int(ended) / 1e6, name


def test_without_it_stacks_are_added_up(tmp_path: Path) -> None:
    with started(program("idle.py")) as target:
        profile = cli.attach(target.pid, tmp_path, 0.5, 100).profile
    assert all("time" not in sample.labels for sample in profile.samples)
