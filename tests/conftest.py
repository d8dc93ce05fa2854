"""Fixtures and the rules of this test suite: nothing is skipped; what a test needs and does not find is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli import LONG
from support.targets import VERSIONS, waits_library


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Each supported CPython."""
    return str(request.param)


@pytest.fixture(scope="session")
def waits() -> Path:
    """The C library of tests/targets/waits.c."""
    return waits_library()


def pytest_report_header() -> str:
    return (
        "remoteprof: the long forms" if LONG else "remoteprof: the short forms (scripts/test --all runs the long ones)"
    )
