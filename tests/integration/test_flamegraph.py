"""What can be done on the flame graph, by mouse and by keyboard, in Chromium. Screenshots are kept in
.cache/screenshots."""

from __future__ import annotations

import re

import pytest
from support.graph import ROW, ROWS, Show, click_box, colour_at, current, place, press, profile_of

from remoteprof.profile.model import Label


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
