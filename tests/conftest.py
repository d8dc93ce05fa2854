"""Fixtures and the rules of this test suite: nothing is skipped; what a test needs and does not find is a failure."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.cli import LONG
from support.targets import VERSIONS, waits_library

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from support.browser import Opened
    from support.graph import Show

    from remoteprof.profile.model import Profile


def pytest_configure() -> None:
    """Tests, and the programs that they start, see Ctrl-C and the end of a terminal as from one, also where a shell
    started us in the background and with them ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Each supported CPython."""
    return str(request.param)


@pytest.fixture(scope="session")
def waits() -> Path:
    """The C library of tests/targets/waits.c."""
    return waits_library()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium."""
    # Imported on use, here and below: few tests need a browser.
    from support.browser import chromium

    with chromium() as found:
        yield found


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Show:
    """Opens the flame graph of a profile; in the end nothing was complained of, and no request was made."""
    from support.browser import opened
    from support.graph import ROWS, profile_of

    from remoteprof.formats import save

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


def pytest_report_header() -> str:
    return (
        "remoteprof: the long forms" if LONG else "remoteprof: the short forms (scripts/test --all runs the long ones)"
    )
