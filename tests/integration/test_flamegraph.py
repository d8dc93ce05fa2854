"""The flame graph's page in Chromium: everything that can be done on it, by mouse and by keyboard, and that nothing of
it leaves the page. Screenshots are kept in .cache/screenshots."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from support.browser import Opened, chromium, opened, served
from support.generated import COUNT, CPU, HOSTILE, WALL, large

from remoteprof.formats import save
from remoteprof.profile.model import Function, Label, Line, Location, Mapping, Profile, Sample

ROW = 18
MS = 10**6
LIBRARY = Mapping(0, 1 << 40, 0, "/usr/lib/libwork.so")
MAIN = (Label("pid", 7), Label("process", "server"), Label("state", "running"))
WORKER = (Label("pid", 8), Label("process", "worker"), Label("state", "sleeping"))
FIRST, SECOND = (
    (Label("thread_id", 70), Label("thread_name", "one")),
    (Label("thread_id", 80), Label("thread_name", "two")),
)
Row = tuple[list[str], int, int, tuple[Label, ...]]
# Root first; cpu, wall in ms; labels. In all: cpu 100 ms, wall 400 ms.
ROWS: list[Row] = [
    (["main", "serve", "parse"], 40, 50, MAIN + FIRST),
    (["main", "serve", "parse", "parse"], 10, 10, MAIN + FIRST),
    (["main", "serve"], 5, 40, MAIN + FIRST),
    (["main", "store"], 25, 100, MAIN + SECOND),
    (["loop", "parse"], 15, 100, WORKER + SECOND),
    ([], 5, 100, WORKER + SECOND),
]

Show = Callable[..., Any]


def profile_of(rows: Sequence[Row]) -> Profile:
    known: dict[str, Location] = {}

    def place(name: str) -> Location:
        if name not in known:
            library = LIBRARY if name in ("parse", "store") else None
            line = Line(Function(name, name, f"/app/{name}.py", 10), 12)
            known[name] = Location([line], library)
        return known[name]

    samples = [
        Sample(tuple(place(name) for name in reversed(names)), [1, cpu * MS, wall * MS], labels)
        for names, cpu, wall, labels in rows
    ]
    comments = ["command: remoteprof attach 7", "host: <b>test</b>"]
    return Profile([COUNT, CPU, WALL], samples, [LIBRARY], "cpu", WALL, 10 * MS, comments=comments)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Show:
    """Opens the flame graph of a profile; in the end nothing was complained of, and no request was made."""

    @contextlib.contextmanager
    def showing(profile: Profile | None = None, **options: Any) -> Iterator[Opened]:
        path = tmp_path / "x.html"
        save(profile if profile is not None else profile_of(ROWS), str(path))
        with opened(browser, path.as_uri(), **options) as seen:
            seen.page.locator("html[data-ready]").wait_for()
            seen.settle()
            yield seen
            assert seen.complaints == []
            assert seen.requests == [path.as_uri()]

    return showing


def press(seen: Opened, *keys: str) -> None:
    for key in keys:
        seen.page.keyboard.press(key)
    seen.settle()


def click_box(seen: Opened, share: float, depth: int) -> None:
    """Clicks a box of an icicle by where it stands: its share of the width, its depth."""
    box = seen.page.locator("#stage").bounding_box()
    assert box is not None
    seen.page.mouse.click(box["x"] + share * box["width"], box["y"] + depth * ROW + ROW / 2)
    seen.settle()


def current(seen: Opened) -> str:
    """What a screen reader says of the current box."""
    identity = seen.page.locator("#stage").get_attribute("aria-activedescendant")
    return seen.page.locator(f"#{identity}").get_attribute("aria-label") or ""


def place(seen: Opened) -> tuple[float, float, float]:
    """Left edge, width and top of the current box, as shares of the graph, and in pixels."""
    box, stage = (seen.page.locator(name).bounding_box() for name in ("#current", "#stage"))
    assert box and stage
    return (box["x"] - stage["x"]) / stage["width"], box["width"] / stage["width"], box["y"] - stage["y"]


def colour_at(seen: Opened, share: float, depth: int) -> tuple[int, int, int]:
    """The colour of a box on white, at its lower left corner, where no text is."""
    found = seen.page.evaluate(
        """([share, y]) => {
            const canvas = document.querySelector("#canvas");
            const x = Math.round(share * canvas.width) + 1;
            const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
            pixel.drawImage(canvas, x, y * devicePixelRatio, 1, 1, 0, 0, 1, 1);
            const { data: [, , , drawn] } = pixel.getImageData(0, 0, 1, 1);
            pixel.globalCompositeOperation = "destination-over";
            pixel.fillStyle = "white";
            pixel.fillRect(0, 0, 1, 1);
            return [drawn, ...pixel.getImageData(0, 0, 1, 1).data];
        }""",
        [share, depth * ROW + ROW - 3],
    )
    assert found[0] > 0, "nothing is drawn there"
    return found[1], found[2], found[3]


def test_it_is_drawn(show: Show) -> None:
    with show() as seen:
        assert seen.page.title() == "Flame graph · remoteprof attach 7"
        assert seen.text("#total") == "cpu: 100 ms in all"
        colours = {colour_at(seen, share, depth) for share, depth in ((0, 0), (0, 1), (0, 2), (0, 3), (0.9, 1))}
        assert len(colours) >= 4
        with pytest.raises(AssertionError, match="nothing is drawn"):
            colour_at(seen, 0.9, 5)
        seen.page.locator("#about summary").click()
        assert seen.text("#comments") == "command: remoteprof attach 7\nhost: <b>test</b>"
        assert len(seen.screenshot("flamegraph-light")) > 10_000


def test_boxes_are_as_wide_as_their_values(show: Show) -> None:
    with show() as seen:
        seen.page.locator("#stage").focus()
        press(seen, "ArrowDown", "ArrowDown", "ArrowDown")
        assert current(seen).startswith("parse, 50 ms (50.00 %), self 40 ms (40.00 %), libwork.so, /app/parse.py:10")
        left, width, top = place(seen)
        assert [left, width, top] == pytest.approx([0, 0.5, 3 * ROW + 1], abs=0.01)
        press(seen, "ArrowUp", "ArrowRight")
        assert current(seen).startswith("store, 25 ms")
        assert place(seen)[:2] == pytest.approx((0.55, 0.25), abs=0.01)


def test_zoom_by_mouse(show: Show) -> None:
    with show() as seen:
        reset = seen.page.locator("#reset")
        assert reset.is_disabled()
        click_box(seen, 0.6, 2)
        assert current(seen).startswith("store, 25 ms (25.00 %)")
        assert place(seen)[:2] == pytest.approx((0, 1), abs=0.01)
        # Its caller is above it, as wide.
        click_box(seen, 0.95, 1)
        assert current(seen).startswith("main, 80 ms")
        click_box(seen, 0.5, 2)
        assert current(seen).startswith("serve, 55 ms")
        reset.click()
        assert reset.is_disabled() and current(seen).startswith("all, 100 ms")


def test_the_mouse_shows_a_tooltip(show: Show) -> None:
    with show() as seen:
        box = seen.page.locator("#stage").bounding_box()
        assert box
        seen.page.mouse.move(box["x"] + 10, box["y"] + ROW * 1.5)
        tooltip = seen.page.locator("#tooltip")
        assert tooltip.inner_text() == "main\n80 ms (80.00 %), self 0 ns (0.00 %)\nmain.py · /app/main.py:10"
        seen.page.mouse.move(box["x"] + 10, box["y"] + box["height"] + 5)
        assert tooltip.is_hidden()


@pytest.mark.parametrize(
    "text, matched",
    [
        ("parse", "matched: 65.00 %"),  # recursion counts once
        ("PAR", "matched: 65.00 %"),
        ("/^(loop|store)$/", "matched: 40.00 %"),
        ("/^s/", "matched: 80.00 %"),
        ("[empty]", "matched: 5.00 %"),
        ("nowhere", "matched: 0.00 %"),
        ("/(/", "not a regular expression"),
        ("", ""),
    ],
)
def test_search(show: Show, text: str, matched: str) -> None:
    with show() as seen:
        before = colour_at(seen, 0, 3)
        seen.page.locator("#search").fill(text)
        seen.settle()
        assert seen.text("#matched") == matched == seen.text("#said")[: len(matched)]
        changed = colour_at(seen, 0, 3) != before
        assert changed == (matched.startswith("matched"))
        seen.page.locator("#inverted").check()
        assert seen.text("#matched") == matched


def test_search_within_the_zoom(show: Show) -> None:
    with show() as seen:
        seen.page.locator("#search").fill("parse")
        click_box(seen, 0.1, 1)
        assert seen.text("#matched") == "matched: 65.00 %, 62.50 % of the zoom"


def test_other_value_types(show: Show) -> None:
    with show() as seen:
        options = seen.page.locator("#column option").all_inner_texts()
        assert options == ["samples (count)", "cpu (nanoseconds)", "wall (nanoseconds)"]
        seen.page.locator("#column").select_option(label="wall (nanoseconds)")
        assert seen.text("#total") == "wall: 400 ms in all"
        seen.page.locator("#stage").focus()
        press(seen, "Home", "ArrowDown")
        assert current(seen).startswith("main, 200 ms (50.00 %)")
        seen.page.locator("#column").select_option("0")
        assert seen.text("#total") == "samples: 6 in all"


def test_filters(show: Show) -> None:
    with show() as seen:
        page = seen.page
        options = page.locator("select[data-key=thread] option").all_inner_texts()
        assert options == ["all", "one (70)", "two (80)"]
        page.locator("select[data-key=thread]").select_option(label="two (80)")
        assert seen.text("#total") == "cpu: 45 ms in all"
        page.locator("select[data-key=process]").select_option(label="server (7)")
        assert seen.text("#total") == "cpu: 25 ms in all"
        page.locator("select[data-key=state]").select_option(label="sleeping")
        assert seen.text("#total") == "cpu: 0 ns in all"
        page.locator("select[data-key=process]").select_option("-1")
        assert seen.text("#total") == "cpu: 20 ms in all"
        seen.screenshot("flamegraph-filtered")


def test_a_label_that_some_lack_can_be_chosen(show: Show) -> None:
    rows = [*ROWS, (["main"], 7, 7, (Label("request", "a"),))]
    with show(profile_of(rows)) as seen:
        choice = seen.page.locator("select[data-key=request]")
        assert choice.locator("option").all_inner_texts() == ["all", "(none)", "a"]
        choice.select_option(label="(none)")
        assert seen.text("#total") == "cpu: 100 ms in all"
        choice.select_option(label="a")
        assert seen.text("#total") == "cpu: 7 ms in all"


def test_inverted(show: Show) -> None:
    with show() as seen:
        seen.page.locator("#inverted").check()
        seen.page.locator("#stage").focus()
        press(seen, "Home", "ArrowDown")
        # All the leaves named parse, then who called them.
        assert current(seen).startswith("parse, 65 ms (65.00 %), libwork.so")
        press(seen, "ArrowDown")
        assert current(seen).startswith("serve, 40 ms")
        press(seen, "ArrowRight")
        assert current(seen).startswith("loop, 15 ms")
        press(seen, "ArrowRight")
        assert current(seen).startswith("parse, 10 ms")
        assert seen.text("#total") == "cpu: 100 ms in all"
        seen.screenshot("flamegraph-inverted")


def test_root_at_the_bottom(show: Show) -> None:
    with show() as seen:
        seen.page.locator("#flame").check()
        seen.page.locator("#stage").focus()
        press(seen, "Home")
        root = place(seen)[2]
        press(seen, "ArrowUp")
        assert current(seen).startswith("main, 80 ms") and place(seen)[2] == root - ROW
        box = seen.page.locator("#stage").bounding_box()
        assert box and box["height"] - root < 2 * ROW + 2
        seen.page.mouse.click(box["x"] + 0.6 * box["width"], box["y"] + root - ROW * 1.5)
        seen.settle()
        assert current(seen).startswith("store, 25 ms")
        press(seen, "ArrowDown")
        assert current(seen).startswith("main")


def test_keyboard(show: Show) -> None:
    with show() as seen:
        page = seen.page
        page.keyboard.press("/")
        page.keyboard.type("parse")
        press(seen, "Enter")
        assert current(seen).startswith("parse, 50 ms")
        press(seen, "n")
        assert current(seen).startswith("parse, 10 ms")
        press(seen, "n")
        assert current(seen).startswith("parse, 15 ms")
        press(seen, "n", "p")
        assert current(seen).startswith("parse, 15 ms")
        press(seen, "Enter")
        assert place(seen)[1] == pytest.approx(1, abs=0.01) and page.locator("#reset").is_enabled()
        press(seen, "ArrowUp")
        assert current(seen).startswith("loop, 15 ms") and page.locator("#reset").is_enabled()
        press(seen, "Escape")
        assert current(seen).startswith("all") and page.locator("#reset").is_disabled()
        # Everything can be reached by Tab, and leaves the graph again.
        reached = set()
        for _ in range(20):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        assert {"column", "colour", "inverted", "flame", "search", "theme", "stage", "SUMMARY"} <= reached


def test_screen_readers(show: Show) -> None:
    with show() as seen:
        page = seen.page
        page.locator("#stage").focus()
        press(seen, "ArrowDown", "ArrowDown", "ArrowRight")
        tree = page.locator("main").aria_snapshot()
        assert 'tree "Flame graph"' in tree
        assert re.search(r'treeitem "store, 25 ms \(25\.00 %\), self 25 ms[^"]*" .*\[level=3\]', tree), tree
        item = page.locator("#current")
        found = [item.get_attribute(f"aria-{name}") for name in ("level", "posinset", "setsize", "expanded")]
        assert found == ["3", "2", "2", None]
        controls = page.locator("form").aria_snapshot()
        for label in ("Value", "Thread", "Colour by", "Inverted", "Search"):
            assert label in controls
        page.locator("#search").fill("parse")
        assert page.get_by_role("status").last.inner_text() == "matched: 65.00 %"


def test_functions_table(show: Show) -> None:
    with show() as seen:
        seen.page.locator("#functions summary").click()

        def table() -> list[list[str]]:
            rows = seen.page.locator("#rows tr").all()
            return [row.locator("td").all_inner_texts() for row in rows]

        expected = [
            ["parse", "libwork.so", "65 ms", "65.00 %", "65 ms", "65.00 %"],
            ["store", "libwork.so", "25 ms", "25.00 %", "25 ms", "25.00 %"],
            ["serve", "serve.py", "5 ms", "5.00 %", "55 ms", "55.00 %"],
            ["[empty]", "", "5 ms", "5.00 %", "5 ms", "5.00 %"],
            ["main", "main.py", "0 ns", "0.00 %", "80 ms", "80.00 %"],
            ["loop", "loop.py", "0 ns", "0.00 %", "15 ms", "15.00 %"],
        ]
        assert table() == expected
        seen.page.locator("#inverted").check()
        assert table() == expected
        seen.page.locator("#rows button", has_text="store").click()
        assert seen.text("#matched") == "matched: 25.00 %"
        assert seen.page.locator("#legend li").all_inner_texts()[0] == "libwork.so 90.00 %"


def test_colours(show: Show) -> None:
    with show() as seen:
        # parse and store are of one module, serve of another.
        assert colour_at(seen, 0, 3) == colour_at(seen, 0.56, 2) != colour_at(seen, 0, 2)
        seen.page.locator("#colour").select_option("function")
        seen.settle()
        assert colour_at(seen, 0, 3) != colour_at(seen, 0.56, 2)
        assert seen.page.locator("#legend").is_hidden()


def test_dark(show: Show) -> None:
    def background(seen: Opened) -> int:
        text = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", text)[:3]))

    with show(color_scheme="light") as seen:
        light = colour_at(seen, 0, 1)
        assert background(seen) > 600
        theme = seen.page.locator("#theme")
        theme.click()
        assert background(seen) > 600 and theme.inner_text() == "Theme: light"
        theme.click()
        seen.settle()
        assert background(seen) < 150 and sum(colour_at(seen, 0, 1)) < sum(light) / 2
    with show(color_scheme="dark") as seen:
        assert background(seen) < 150 and sum(colour_at(seen, 0, 1)) < sum(light) / 2
        seen.screenshot("flamegraph-dark")


def test_narrow_windows_and_sharp_screens(show: Show) -> None:
    with show(viewport={"width": 360, "height": 640}, device_scale_factor=3) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 360
        assert seen.page.evaluate("document.querySelector('#canvas').width") == 360 * 3
        click_box(seen, 0.1, 1)
        assert current(seen).startswith("main")
        seen.page.set_viewport_size({"width": 800, "height": 640})
        seen.settle()
        assert place(seen)[1] == pytest.approx(1, abs=0.01)
        seen.screenshot("flamegraph-narrow")


def test_hostile_names_do_no_harm(show: Show) -> None:
    rows = [([name, "leaf"], index + 1, 1, (Label("thread_name", name),)) for index, name in enumerate(HOSTILE)]
    profile = profile_of(rows)
    profile.comments = [f"command: {HOSTILE[0]}", *HOSTILE]
    with show(profile) as seen:
        page = seen.page
        page.locator("#functions summary").click()
        page.locator("#about summary").click()
        page.locator("#stage").focus()
        press(seen, "ArrowDown", *["ArrowRight"] * len(HOSTILE))
        assert current(seen).startswith("</script><script>document.title='owned'</script>, 1 ms")
        assert page.title() == f"Flame graph · {HOSTILE[0]}"
        tags = page.evaluate("[...document.querySelectorAll('script, img')].length")
        assert tags == 1, "the page has a script of its own, and its profile is gone"
        names = page.locator("#rows td:first-child").all_inner_texts()
        assert {HOSTILE[0], HOSTILE[1], "\\u202egnp.exe\\u2066", "bad\\xffbyte"} <= set(names)
        assert "\u202e" not in seen.text("body")
        seen.screenshot("flamegraph-hostile")


def test_nothing_leaves_the_page(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    save(profile_of(ROWS), str(tmp_path / "site" / "x.html"))
    with served(tmp_path) as outside, served(tmp_path / "site") as site:
        with opened(browser, f"{site.address}/x.html") as seen:
            seen.page.locator("html[data-ready]").wait_for()
            seen.settle()
            assert seen.complaints == []
            # What would do harm, had a name become part of the page after all.
            found = seen.page.evaluate(
                """async (address) => {
                    const results = [];
                    const note = (what, sent) => results.push(`${what} ${sent}`);
                    note("fetch", await fetch(address + "/fetch").then(() => true, () => false));
                    const image = new Image();
                    const loaded = new Promise((done) => { image.onload = image.onerror = done; });
                    image.src = address + "/image";
                    await loaded;
                    for (const [tag, key] of [["iframe", "src"], ["script", "src"], ["link", "href"]]) {
                        const element = document.createElement(tag);
                        element.rel = "stylesheet";
                        element[key] = address + "/" + tag;
                        document.body.append(element);
                    }
                    const inline = document.createElement("script");
                    inline.textContent = "document.title = 'owned'";
                    document.body.append(inline);
                    document.body.insertAdjacentHTML("beforeend", "<b onclick=\\"document.title='owned'\\">x</b>");
                    document.body.lastChild.click();
                    await new Promise((done) => setTimeout(done, 300));
                    note("title", document.title);
                    return results;
                }""",
                outside.address,
            )
            assert found == ["fetch false", "title Flame graph · remoteprof attach 7"]
        assert outside.asked == []
        assert site.asked == ["/x.html"]


def test_a_difference_is_red_and_blue(show: Show) -> None:
    rows: list[Row] = [
        (["main", "grown"], 30, 0, ()),
        (["main", "shrunk"], -10, 0, ()),
    ]
    with show(profile_of(rows)) as seen:
        assert seen.text("#total") == "cpu: 20 ms in all"
        red, blue = colour_at(seen, 0, 2), colour_at(seen, 0.8, 2)
        assert red[0] > red[2] and blue[2] > blue[0]
        seen.page.locator("#stage").focus()
        press(seen, "ArrowDown", "ArrowDown", "ArrowRight")
        assert current(seen).startswith("shrunk, -10 ms (-25.00 %)")
        assert place(seen)[:2] == pytest.approx((0.75, 0.25), abs=0.01)
        seen.screenshot("flamegraph-difference")


def test_a_profile_of_nothing(show: Show) -> None:
    with show(Profile([COUNT, CPU])) as seen:
        assert seen.text("#total") == "cpu: 0 ns in all"
        seen.page.locator("#inverted").check()
        seen.page.locator("#search").fill("x")
        assert seen.text("#matched") == "matched: 0.00 %"
        seen.page.locator("#stage").focus()
        press(seen, "ArrowDown", "Enter", "n")
        assert current(seen).startswith("all, 0 ns")


def test_deep_stacks(show: Show) -> None:
    names = [f"level {index}" for index in range(20_000)]
    with show(profile_of([(names, 1, 1, ())])) as seen:
        seen.page.locator("#search").fill("level 19999")
        press(seen, "Tab")
        seen.page.locator("#stage").focus()
        press(seen, "n")
        assert current(seen).startswith("level 19999, 1 ms (100.00 %), self 1 ms")
        stage = seen.page.locator("#stage").bounding_box()
        assert stage and 0 < place(seen)[2] < stage["height"]
        seen.page.locator("#inverted").check()
        seen.page.locator("#stage").focus()
        press(seen, "Home", "ArrowDown")
        assert current(seen).startswith("level 19999")


def test_boxes_too_narrow_to_tell_apart(show: Show) -> None:
    rows: list[Row] = [(["main", f"wide {index}"], 100, 0, ()) for index in range(2)]
    rows += [(["main", f"narrow {index}"], 1, 0, ()) for index in range(5_000)]
    with show(profile_of(rows)) as seen:
        # 200 of 5,200 are wide; all the others together are one box.
        assert colour_at(seen, 0.5, 2) == colour_at(seen, 0.95, 2) != colour_at(seen, 0, 2)
        click_box(seen, 0.5, 2)
        assert current(seen).startswith("all")
        seen.page.locator("#search").fill("narrow 4321")
        seen.settle()
        assert seen.text("#matched") == "matched: 0.02 %"
        seen.page.locator("#stage").focus()
        press(seen, "n")
        assert current(seen).startswith("narrow 4321, 1 ms") and place(seen)[1] < 0.01
        press(seen, "Enter")
        assert place(seen)[:2] == pytest.approx((0, 1), abs=0.01)


def test_a_large_profile(show: Show, tmp_path: Path) -> None:
    """100,000 distinct stacks of 40 frames: the page is at most twice as large as the pprof, and everything works."""
    profile = large(100_000, 40)
    pprof = profile.save(tmp_path / "x.pb")
    with show(profile) as seen:
        page = (tmp_path / "x.html").stat().st_size
        print(f"pprof {pprof} bytes, HTML {page} bytes")
        assert page <= 2 * pprof
        whole = sum(sample.values[1] for sample in profile.samples)
        assert seen.text("#total") == f"cpu: {whole / 1e9:,.0f} s in all"
        mine = sum(s.values[1] for s in profile.samples if Label("thread_name", "worker-2") in s.labels)
        seen.page.locator("select[data-key=thread]").select_option(label="worker-2 (102)")
        assert seen.text("#total") == f"cpu: {mine / 1e9:,.0f} s in all"
        seen.page.locator("#search").fill("function_7")
        with_it = sum(
            s.values[1]
            for s in profile.samples
            if Label("thread_name", "worker-2") in s.labels
            and any("function_7" in location.lines[0].function.name for location in s.locations)
        )
        assert seen.text("#matched") == f"matched: {100 * with_it / mine:.2f} %"
        seen.page.locator("#inverted").check()
        assert seen.text("#matched") == f"matched: {100 * with_it / mine:.2f} %"
        click_box(seen, 0.001, 1)
        assert not current(seen).startswith("all")
        seen.screenshot("flamegraph-large")


def test_a_broken_page_says_so(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    save(profile_of(ROWS), str(path))
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r'(id="profile">)[^<]{40}', r"\g<1>", text), encoding="utf-8")
    with opened(browser, path.as_uri()) as seen:
        seen.page.locator("#failure").wait_for()
        assert seen.text("#failure").startswith("This profile cannot be shown: ")


def test_the_svg_is_an_image(browser: Browser, tmp_path: Path) -> None:
    rows = [*ROWS, ([HOSTILE[0], HOSTILE[2]], 10, 10, ())]
    save(profile_of(rows), str(tmp_path / "x.svg"))
    with opened(browser, (tmp_path / "x.svg").as_uri()) as seen:
        titles = seen.page.locator("title").all_text_contents()
        assert "serve (55000000 nanoseconds, 50.00 %)\n/app/serve.py:10" in titles
        assert any(title.startswith("</script><script>document.title='owned'</script> (") for title in titles)
        assert seen.page.locator("script").count() == 0
        widths = seen.page.evaluate("[...document.querySelectorAll('g > g')].map(g => g.getBBox().width)")
        assert max(widths) <= 1200 and len(widths) == len(titles)
        seen.screenshot("flamegraph-svg")
        assert seen.complaints == [] and len(seen.requests) == 1
