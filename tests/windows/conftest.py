"""What all tests under wine share."""

from __future__ import annotations

import pytest
from support import wine


@pytest.fixture(scope="module", autouse=True)
def server() -> None:
    wine.serve()
