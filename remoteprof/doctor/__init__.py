"""What works on this machine, and on one process, and what does not: facts, each with what would mend it.

Nothing is changed and no rights are needed; what cannot be read is itself a finding.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """One fact. `status`: "ok", or "limit" where something does not work, or less well; `mend`: what to do about it,
    "" = nothing."""

    name: str
    status: Literal["ok", "limit"]
    fact: str
    mend: str = ""


def ok(name: str, fact: str) -> Finding:
    """Nothing is in the way."""
    return Finding(name, "ok", fact)


def limit(name: str, fact: str, mend: str = "") -> Finding:
    """Something is in the way."""
    return Finding(name, "limit", fact, mend)
