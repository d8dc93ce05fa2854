"""The flame graph's page in Chromium: dark and small screens, hostile names, nothing that leaves it, profiles of any
size. Screenshots are kept in .cache/screenshots."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from support.browser import Opened, opened, served
from support.generated import COUNT, CPU, HOSTILE, large
from support.graph import ROWS, Row, Show, click_box, colour_at, current, place, press, profile_of

from remoteprof.formats import save
from remoteprof.profile.model import Label, Profile


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
