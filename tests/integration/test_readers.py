"""What is written is read by the programs it is written for: speedscope and the Firefox Profiler, as published. The
flame graph's reader is a browser: test_flamegraph."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from support import cli
from support.browser import READERS, chromium, opened, served
from support.generated import COUNT, CPU, HOSTILE, WALL, large, profiles
from support.targets import PATIENCE, program, started

from remoteprof.formats import save
from remoteprof.profile.model import Function, Label, Line, Location, Mapping, Profile, Sample

SPEEDSCOPE = READERS / "node_modules" / "speedscope" / "dist" / "release"
PROFILER = READERS / "node_modules" / "@firefox-devtools" / "profiler-cli" / "dist" / "profiler-cli.js"
READER_SETTINGS = settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def schema() -> Any:
    path = SPEEDSCOPE / "file-format-schema.json"
    assert path.exists(), "no speedscope: run scripts/setup-readers"
    validator = jsonschema.Draft7Validator(json.loads(path.read_text(encoding="utf-8")))
    validator.check_schema(validator.schema)
    return validator


@READER_SETTINGS
@given(profiles())
def test_speedscope_files_follow_its_schema(schema: Any, tmp_path: Path, profile: Profile) -> None:
    save(profile, str(tmp_path / "x.speedscope.json"))
    read = json.loads((tmp_path / "x.speedscope.json").read_text(encoding="utf-8"))
    schema.validate(read)
    # What a schema cannot say.
    frames = len(read["shared"]["frames"])
    assert 0 <= read["activeProfileIndex"] < len(read["profiles"])
    for one in read["profiles"]:
        assert len(one["samples"]) == len(one["weights"])
        assert all(0 <= frame < frames for stack in one["samples"] for frame in stack)


def test_the_schema_refuses_what_is_wrong(schema: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        schema.validate({"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": [{}]})


def test_speedscope_opens_it(tmp_path: Path) -> None:
    profile = harmful()
    save(profile, str(tmp_path / "x.speedscope.json"))
    (tmp_path / "app").symlink_to(SPEEDSCOPE)
    with (
        served(tmp_path) as site,
        chromium() as browser,
        opened(browser, f"{site.address}/app/index.html#profileURL=/x.speedscope.json&title=read") as seen,
    ):
        # The active profile is the second, that of CPU time.
        seen.page.get_by_text("read (2/").wait_for()
        seen.page.get_by_text("Sandwich").click()
        seen.page.get_by_text("Symbol Name").wait_for()
        table = seen.text("body")
        for name in ("\\x1b]0;owned", "\\u202egnp.exe", "bad\\xffbyte", "</script><script>", "[empty]", "代码"):
            assert name in table, name
        assert f"{len(HOSTILE)}.00ms" in table
        seen.screenshot("speedscope")
        assert "/x.speedscope.json" in site.asked
        assert [text for text in seen.complaints if text.startswith(("error", "uncaught", "dialog"))] == []


def harmful() -> Profile:
    """A profile with hostile names, in one thread."""
    samples = []
    for index, name in enumerate(HOSTILE):
        frame = Location([Line(Function(name, name, name, 3), 4)], Mapping(0, 9, 0, name, name), 5)
        labels = (Label("pid", 7), Label("process", name), Label("thread_id", 7), Label("thread_name", HOSTILE[0]))
        samples.append(Sample((frame,), [1, (index + 1) * 10**6, 10**8], labels))
    samples.append(Sample((), [1, 10**6, 10**6], samples[0].labels))
    return Profile([COUNT, CPU, WALL], samples, [], "cpu", WALL, 10**7, comments=list(HOSTILE))


class FirefoxProfiler:
    """The Firefox Profiler's command line with one profile loaded."""

    def __init__(self, path: Path, home: Path) -> None:
        assert PROFILER.exists(), "no Firefox Profiler: run scripts/setup-readers"
        self._environment = {
            **os.environ,
            "HOME": str(home),
            "PROFILER_CLI_SESSION_DIR": str(home / "sessions"),
            "PROFILER_CLI_NO_SYMBOLICATE": "1",
        }
        self.path = path

    def ask(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(READERS / "node"), str(PROFILER), *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE * 2,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ask(*arguments, "--json"))

    def threads(self) -> list[dict[str, Any]]:
        return [thread for one in self.json("profile", "info", "--all")["processes"] for thread in one["threads"]]


@pytest.fixture
def firefox(tmp_path: Path) -> Iterator[FirefoxProfiler]:
    reader = FirefoxProfiler(tmp_path / "x.gecko.json", tmp_path)
    yield reader
    reader.ask("stop", "--all")


def test_the_firefox_profiler_reads_it(firefox: FirefoxProfiler) -> None:
    profile = large(200, 12)
    profile.comments = ["command: remoteprof attach 1"]
    save(profile, str(firefox.path))
    firefox.ask("load", str(firefox.path))
    names = {f"worker-{index}" for index in range(4)}
    threads = firefox.threads()
    assert {thread["name"] for thread in threads} == names
    for thread in threads:
        mine = [s for s in profile.samples if Label("thread_name", thread["name"]) in s.labels]
        assert thread["cpuMs"] == sum(s.values[1] for s in mine) / 1e6
        functions = firefox.json("thread", "functions", "--thread", thread["threadHandle"])["functions"]
        own: dict[str, int] = {}
        for sample in mine:
            function = sample.locations[0].lines[0].function
            own[function.name] = own.get(function.name, 0) + sample.values[1]
        shown = {one["name"]: one["selfSamples"] for one in functions if one["selfSamples"]}
        assert shown == pytest.approx({name: value / 1e6 for name, value in own.items()})
        assert {one["library"] for one in functions} <= {f"lib{i}.so" for i in range(1, 6)}
    assert "remoteprof attach 1" in firefox.ask("profile", "info")


def test_the_firefox_profiler_reads_hostile_names(firefox: FirefoxProfiler) -> None:
    save(harmful(), str(firefox.path))
    firefox.ask("load", str(firefox.path))
    threads = firefox.threads()
    assert len(threads) == len({name for name in HOSTILE})
    assert sum(thread["cpuMs"] for thread in threads) == sum(range(1, len(HOSTILE) + 1)) + 1
    text = firefox.ask("thread", "samples", "--thread", threads[0]["threadHandle"])
    assert all(character.isprintable() or character == "\n" for character in text)


def test_a_recording_is_written_in_each_format(tmp_path: Path) -> None:
    with started(program("idle.py")) as target:
        for name, sign in (
            ("x.folded", b"<module>;main;wait_for_input"),
            ("x.speedscope.json", b'"$schema"'),
            ("x.html", b"<!DOCTYPE html>"),
            ("x.svg", b"<svg "),
            ("x.gecko.json", b'"preprocessedProfileVersion"'),
        ):
            result = cli.remoteprof("attach", target.pid, "-d", "0.5", "-o", tmp_path / name)
            assert result.status == 0, result.stderr
            assert sign in (tmp_path / name).read_bytes(), name
            assert "open it: " in result.stderr and "go tool pprof" not in result.stderr
        result = cli.remoteprof("attach", target.pid, "-d", "0.5", "-f", "flamegraph", "-o", "-")
        assert result.status == 0 and "<!DOCTYPE html>" in result.stdout
