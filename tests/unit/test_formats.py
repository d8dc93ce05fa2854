"""folded, speedscope, flame graph, gecko: totals, names, sizes. Their own readers are in tests/integration."""

import base64
import hashlib
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from importlib.resources import files

import pytest
from hypothesis import HealthCheck, given, settings
from support.flamegraph import Embedded, Page
from support.generated import COUNT, CPU, HOSTILE, WALL, profiles

from remoteprof.errors import RemoteprofError
from remoteprof.formats import FORMATS, choose, pprof, save
from remoteprof.formats.frames import MAX_NAME, UNNAMED, Frames, default_column
from remoteprof.formats.labels import facets
from remoteprof.profile.model import Function, Label, Line, Location, Mapping, Profile, Sample
from remoteprof.text import printable

SUFFIXES = [suffix for form in FORMATS.values() for suffix in form.suffixes]
SVG = "{http://www.w3.org/2000/svg}"


def written(profile, suffix):
    stream = io.BytesIO()
    form, chosen = choose(f"x{suffix}")
    assert chosen == suffix
    form.write(profile, stream, suffix)
    return stream.getvalue()


def location(name, file="", line=0, mapping=None):
    return Location([Line(Function(name, name, file, line), line + 1)], mapping)


def simple(*stacks, kinds=(CPU,), default="", comments=()):
    """A profile of (names root first, values) or (names, values, labels)."""
    known = {}
    samples = []
    for names, values, *labels in stacks:
        locations = tuple(known.setdefault(name, location(name)) for name in reversed(names))
        samples.append(Sample(locations, list(values), tuple(labels[0]) if labels else ()))
    return Profile(list(kinds), samples, [], default, comments=list(comments))


def folded_rows(content):
    rows = {}
    for line in content.decode().splitlines():
        stack, _, value = line.rpartition(" ")
        rows[stack] = int(value)
    assert len(rows) == content.count(b"\n")
    return rows


def titles(content):
    return [title.text for title in ElementTree.fromstring(content).iter(f"{SVG}title")]


def totals(profile, suffix):
    """The sum of each type that the format shows, by column, from what was written."""
    content = written(profile, suffix)
    column = default_column(profile)
    if suffix in (".pb", ".pb.gz"):
        read = pprof.parse(content)
        return {i: sum(sample.values[i] for sample in read.samples) for i in range(len(read.sample_types))}
    if suffix in (".folded", ".txt"):
        return {column: sum(folded_rows(content).values())}
    if suffix == ".speedscope.json":
        shown = json.loads(content)["profiles"][: len(profile.sample_types)]
        assert all(one["endValue"] == sum(one["weights"]) for one in shown)
        return {i: sum(one["weights"]) for i, one in enumerate(shown)}
    if suffix == ".html":
        rows = Embedded(content).rows
        return {i: sum(values[i] for _, _, values in rows) for i in range(len(profile.sample_types))}
    if suffix == ".svg":
        return {column: int(re.match(r"all \((-?\d+) ", titles(content)[0])[1])}
    scale = 1e6 if profile.sample_types[column].unit == "nanoseconds" else 1
    threads = json.loads(content)["threads"]
    return {column: sum(round(weight * scale) for thread in threads for weight in thread["samples"]["weight"])}


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(profiles())
def test_every_total_is_the_profiles(profile):
    expected = {i: sum(sample.values[i] for sample in profile.samples) for i in range(len(profile.sample_types))}
    for suffix in SUFFIXES:
        shown = totals(profile, suffix)
        assert shown and shown == {i: expected[i] for i in shown}, suffix


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(profiles(least=-(1 << 40)))
def test_the_flame_graph_holds_every_sample(profile):
    frames = Frames()
    expected = Counter()
    for sample in profile.samples:
        stack = frames.stack(sample)
        for column, value in enumerate(sample.values):
            expected[tuple(frames.known[n].name for n in stack), column] += value
    found = Counter()
    for stack, _, values in Embedded(written(profile, ".html")).rows:
        for column, value in enumerate(values):
            found[stack, column] += value
    assert {key: value for key, value in found.items() if value} == {k: v for k, v in expected.items() if v}


@pytest.mark.parametrize("suffix", [suffix for suffix in SUFFIXES if not suffix.startswith(".pb")])
def test_names_do_no_harm(suffix):
    labels = [tuple(Label(key, name) for key in ("process", "thread_name", name or "k")) for name in HOSTILE]
    stacks = [((name, "leaf"), [1], label) for name, label in zip(HOSTILE, labels, strict=True)]
    profile = simple(*stacks, comments=[*HOSTILE, "command: </title><script>"])
    for sample, name in zip(profile.samples, HOSTILE, strict=True):
        place = Location([Line(Function(name, name, name, 1), 1)], Mapping(1, 2, 0, name, name))
        sample.locations = (*sample.locations, place)
    text = written(profile, suffix).decode()
    assert all(character.isprintable() or character == "\n" for character in text)
    if suffix == ".html":
        page = Page(text.encode())
        assert page.tags["script"] == 2 and page.tags["img"] == 0
        text = "\n".join(Embedded(text.encode()).head["strings"])
    elif suffix.endswith(".json"):
        assert all(printable(one) == one for one in strings_of(json.loads(text)))
        text = "\n".join(strings_of(json.loads(text)))
    elif suffix == ".svg":
        assert {element.tag for element in ElementTree.fromstring(text).iter()} == {
            SVG + tag for tag in ("svg", "g", "rect", "text", "title")
        }
        text = "\n".join(titles(text))
    else:
        assert len(folded_rows(text.encode())) == len(HOSTILE)
        assert "a\\x3bb\\x3bc 7;leaf 1\n" in text
    for shown in ("\\x1b]0", "\\u202egnp.exe", "bad\\xffbyte", "\\ud800lone", "two\\x0alines 9", "nul\\x00", "代码·🔥"):
        assert shown in text, shown
    assert UNNAMED in text
    assert "x" * (MAX_NAME - 1) + "…" in text and "x" * MAX_NAME not in text


def strings_of(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_of(inner)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_profile_of_nothing_is_written(suffix):
    assert set(totals(simple(kinds=[COUNT, CPU]), suffix).values()) == {0}


@pytest.mark.parametrize("suffix", [suffix for suffix in SUFFIXES if not suffix.startswith(".pb")])
def test_a_profile_without_types_is_an_error(suffix, tmp_path):
    with pytest.raises(RemoteprofError, match="no value types"):
        save(Profile(), str(tmp_path / f"x{suffix}"))
    assert list(tmp_path.iterdir()) == []


def test_an_empty_stack_is_shown():
    profile = simple(((), [7]), (("f",), [3]))
    assert folded_rows(written(profile, ".folded")) == {"[empty]": 7, "f": 3}
    assert [row[0] for row in Embedded(written(profile, ".html")).rows] == [("[empty]",), ("f",)]
    assert "[empty] (7 nanoseconds, 70.00 %)" in titles(written(profile, ".svg"))
    assert "[empty]" in json.loads(written(profile, ".gecko.json"))["shared"]["stringArray"]
    frames = json.loads(written(profile, ".speedscope.json"))["shared"]["frames"]
    assert {"name": "[empty]"} in frames


def test_folded_shows_the_default_type():
    rows = [(("a", "b"), [1, 20, 5]), (("a",), [1, 30, 5]), (("a", "b"), [1, 1, 5]), (("z",), [1, 0, 5])]
    kinds = [COUNT, CPU, WALL]
    assert written(simple(*rows, kinds=kinds, default="cpu"), ".folded") == b"a 30\na;b 21\n"
    # As pprof has it, the last where none is named.
    assert written(simple(*rows, kinds=kinds), ".txt") == b"a 5\na;b 10\nz 5\n"


def test_a_program_that_slept_is_shown_by_wall_time():
    rows = [(("a",), [1, 0, 5]), (("b",), [1, 0, 7])]
    profile = simple(*rows, kinds=[COUNT, CPU, WALL], default="cpu")
    assert folded_rows(written(profile, ".folded")) == {"a": 5, "b": 7}
    assert titles(written(profile, ".svg"))[0] == "all (12 nanoseconds, 100.00 %)"
    assert Embedded(written(profile, ".html")).head["defaultType"] == 2
    assert default_column(simple(*rows, kinds=[COUNT, CPU, COUNT], default="cpu")) == 1


def test_inlined_calls_are_frames_and_addresses_go_by_their_module():
    inner, outer = Function("inner", "", "a.c", 1), Function("outer", "", "a.c", 9)
    library = Mapping(0x1000, 0x2000, 0, "/lib/x.so")
    stack = (Location([Line(inner, 2), Line(outer, 10)], library, 0x1004), Location([], library, 0x1008))
    profile = Profile([CPU], [Sample(stack, [5])])
    assert written(profile, ".folded") == b"[x.so];outer;inner 5\n"
    frames = json.loads(written(profile, ".speedscope.json"))["shared"]["frames"]
    assert {"name": "inner", "file": "a.c", "line": 1} in frames
    assert {"name": "[x.so]", "file": "x.so"} in frames


def test_speedscope_has_types_then_threads():
    one, two = [Label("thread_id", 1), Label("thread_name", "one")], [Label("thread_id", 2)]
    rows = [(("a",), [1, 5], one), (("a", "b"), [2, 10], one), (("a",), [3, 40], two)]
    read = json.loads(written(simple(*rows, kinds=[COUNT, CPU], default="cpu"), ".speedscope.json"))
    assert [(p["name"], p["unit"], p["endValue"]) for p in read["profiles"]] == [
        ("samples", "none", 6),
        ("cpu", "nanoseconds", 55),
        ("cpu: 2", "nanoseconds", 40),
        ("cpu: one (1)", "nanoseconds", 15),
    ]
    assert read["activeProfileIndex"] == 1


def test_speedscope_refuses_negative_values(tmp_path):
    with pytest.raises(RemoteprofError, match="negative"):
        save(simple((("a",), [-1])), str(tmp_path / "x.speedscope.json"))
    assert list(tmp_path.iterdir()) == []


def test_gecko_lays_stacks_out_by_wall_time():
    rows = [(("a",), [10, 30]), (("b",), [0, 50]), (("c",), [0, 0])]
    profile = simple(*[(s, [v * 10**6 for v in values]) for s, values in rows], kinds=[CPU, WALL], default="cpu")
    [thread] = json.loads(written(profile, ".gecko.json"))["threads"]
    samples = thread["samples"]
    assert samples["time"] == [0, 30, 80]
    assert samples["weight"] == [10, 0, 0] and samples["weightType"] == "tracing-ms"
    assert samples["threadCPUDelta"] == [0, 10**7, 0]
    assert samples["stack"][2] is None


def test_gecko_has_stacks_where_their_time_is():
    second = 1_000_000_000
    rows = [(("b",), 13, 2), (("a",), 11, 1), (("b",), 12, 2), (("rest",), 0, 3)]
    stacks = [
        (names, [1, value * second], (Label("time", time * second, "unix_nanoseconds"),) if time else ())
        for names, time, value in rows
    ]
    profile = simple(*stacks, kinds=[CPU, WALL], default="cpu")
    profile.time_ns = 10 * second
    document = json.loads(written(profile, ".gecko.json"))
    [thread] = document["threads"]
    samples = thread["samples"]
    assert samples["time"] == [1000, 2000, 3000, 5000, 8000]
    first, *same, last, end = samples["stack"]
    assert len(set(same)) == 1 and len({first, same[0], last}) == 3 and end is None
    assert samples["threadCPUDelta"] == [1, 1, 1, 0, 1]
    assert document["meta"]["startTime"] == 10_000
    # Elsewhere they are added up, and the time is nothing to choose samples by.
    assert folded_rows(written(profile, ".folded")) == {"a": 1, "b": 2, "rest": 1}
    page = Embedded(written(profile, ".html"))
    assert len(page.rows) == 3


def test_svg_boxes_are_as_wide_as_their_values():
    content = written(simple((("a", "b"), [60]), (("a",), [20]), (("c",), [20])), ".svg")
    widths = {}
    for group in ElementTree.fromstring(content).iter(f"{SVG}g"):
        if group.find(f"{SVG}title") is not None:
            widths[group.find(f"{SVG}title").text] = float(group.find(f"{SVG}rect").get("width"))
    assert {title: round(width) for title, width in widths.items()} == {
        "all (100 nanoseconds, 100.00 %)": 1200,
        "a (80 nanoseconds, 80.00 %)": 960,
        "b (60 nanoseconds, 60.00 %)": 720,
        "c (20 nanoseconds, 20.00 %)": 240,
    }


def test_svg_says_what_it_cuts(monkeypatch):
    from remoteprof.formats import svg

    monkeypatch.setattr(svg, "MAX_ROWS", 3)
    content = written(simple(("abcdef", [1])), ".svg")
    assert b"(1 stacks cut at 3 frames)" in content
    assert len(titles(content)) == 4


def test_svg_colours_a_difference():
    content = written(simple((("grown",), [30]), (("shrunk",), [-10])), ".svg").decode()
    assert "grown (30 nanoseconds, 75.00 %)" in content and "shrunk (-10 nanoseconds, -25.00 %)" in content
    fills = re.findall(r'fill="(hsl[^"]*)"', content)
    assert fills[1:] == ["hsl(4,90%,70%)", "hsl(214,90%,70%)"]


def test_the_page_allows_its_own_script_and_style_alone():
    page = Page(written(simple((("a",), [1])), ".html"))
    rules = dict(rule.strip().split(" ", 1) for rule in page.policy.split(";"))
    assert rules == {
        "default-src": "'none'",
        "script-src": f"'sha256-{digest(page.texts['script'])}'",
        "style-src": f"'sha256-{digest(page.texts['style'])}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def digest(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_pages_parts_cannot_end_their_elements():
    parts = [part for part in (files("remoteprof.formats") / "flamegraph_page").iterdir() if part.suffix != ".html"]
    assert len(parts) == 7
    for part in parts:
        assert not re.search(r"</|<!--|https?:", part.read_text(encoding="utf-8")), part.name


def test_values_beyond_64_bits_are_an_error():
    with pytest.raises(RemoteprofError, match="64 bits"):
        written(simple((("a",), [1 << 63])), ".html")


def test_modules_are_files_packages_or_nothing():
    profile = Profile(
        [CPU],
        [
            Sample(
                (
                    location("n", "x.c", 1, Mapping(0, 9, 0, "/usr/lib/libx.so.1")),
                    location("json", "/usr/lib/python3.11/json/decoder.py"),
                    location("site", "/a/site-packages/pkg/sub/mod.py"),
                    location("lone", "/usr/lib/python3.11/ast.py"),
                    location("own", "/home/me/app.py"),
                    location("[syscall: read]"),
                    location("win", "", 0, Mapping(0, 9, 0, "C:\\x\\y.dll")),
                ),
                [1],
            )
        ],
    )
    frames = Frames()
    frames.stack(profile.samples[0])
    assert {frame.name: frame.module for frame in frames.known} == {
        "n": "libx.so.1",
        "json": "json",
        "site": "pkg",
        "lone": "ast",
        "own": "app.py",
        "[syscall: read]": "",
        "win": "y.dll",
    }


def test_labels_are_what_samples_are_chosen_by():
    labels = [("bytes", 8, "bytes"), ("pid", 7), ("process", "app"), ("thread", "own"), ("thread_id", 9), ("x", "")]
    assert facets(tuple(Label(*label) for label in labels)) == (
        ("bytes", "8 bytes"),
        ("process", "app (7)"),
        ("thread", "9, own"),
        ("x", ""),
    )
    assert facets((Label("thread_name", "one"),)) == (("thread", "one"),)


def test_each_suffix_names_one_format():
    assert len(SUFFIXES) == len(set(SUFFIXES))
    assert choose("a.speedscope.json")[0] is FORMATS["speedscope"]
    assert choose("a.gecko.json")[0] is FORMATS["gecko"]
    assert choose("a.json", "gecko") == (FORMATS["gecko"], ".gecko.json")
    assert choose("a", "flamegraph")[1] == ".html"
    assert choose("a.svg", "flamegraph")[1] == ".svg"


def test_addresses_without_a_name_are_added_up():
    library, bare = Mapping(0x1000, 0x2000, 0, "/lib/libz.so.1.2.13"), Mapping()
    places = [Location([], library, 0x1000 + step) for step in range(4)] + [
        Location([], bare, 7),
        Location([], None, 9),
    ]
    profile = Profile([CPU], [Sample((place,), [10]) for place in places])
    assert written(profile, ".folded") == b"[libz.so.1.2.13] 40\n[unknown] 20\n"
    assert b"[libz.so.1.2.13] (40 nanoseconds" in written(profile, ".svg")
    heaviest = profile.heaviest(5, "cpu")
    assert [(one.function.name, one.value) for one in heaviest] == [("[libz.so.1.2.13]", 40), ("[unknown]", 20)]
    assert [(row.function.name, row.flat) for row in profile.top()] == [("[libz.so.1.2.13]", 40), ("[unknown]", 20)]
