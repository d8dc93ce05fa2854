"""The library as its documentation shows it."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from remoteprof import session
from remoteprof.profile import model


@pytest.mark.parametrize(("module", "least"), ((model, 8), (session, 3)))
def test_the_examples(module: ModuleType, least: int) -> None:
    result = doctest.testmod(module)
    assert (result.failed, result.attempted >= least) == (0, True)
