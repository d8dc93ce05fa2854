"""A page in Chromium, with everything that it asks for and complains of."""

from __future__ import annotations

import contextlib
import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from support.targets import CACHE, PATIENCE

SCREENSHOTS = CACHE / "screenshots"
READERS = CACHE / "readers"


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium")
    assert path, "no chromium: run scripts/setup-readers"
    with sync_playwright() as driver:
        # Its sandbox does not start for root; what it opens here are files of ours.
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Opened:
    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def settle(self) -> None:
        """Until what was asked for is drawn."""
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def screenshot(self, name: str) -> bytes:
        """Also kept in .cache/screenshots."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.settle()
        return self.page.screenshot(path=SCREENSHOTS / f"{name}.png")


@contextlib.contextmanager
def opened(browser: Browser, address: str, **options: Any) -> Iterator[Opened]:
    """The page at `address`; what it asks for, and every error, warning and dialog, is noted."""
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, "reduced_motion": "reduce"} | options)
    context.set_default_timeout(PATIENCE * 1000)
    try:
        page = context.new_page()
        seen = Opened(page)
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: seen.complaints.append(f"uncaught: {error}"))

        def refuse(dialog: Any) -> None:
            seen.complaints.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        page.on("dialog", refuse)
        page.goto(address)
        yield seen
    finally:
        context.close()


@dataclass
class Site:
    address: str
    asked: list[str]


@contextlib.contextmanager
def served(directory: Path) -> Iterator[Site]:
    """A directory over HTTP on the loopback interface; `asked` has the path of each request."""
    asked: list[str] = []

    class Answers(http.server.SimpleHTTPRequestHandler):
        def log_request(self, *_: object) -> None:
            asked.append(self.path)

        def log_message(self, *_: object) -> None:
            pass

    answers = functools.partial(Answers, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Site(f"http://127.0.0.1:{server.server_port}", asked)
        finally:
            server.shutdown()
            thread.join()
