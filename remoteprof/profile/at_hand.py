"""Names for addresses of profiles that were made without: from the mapped files where they are at hand.

A path in a profile is somebody's claim. A file lends names only if its build id is that of the mapping, so neither a
newer build nor a namesake does.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from remoteprof import _native
from remoteprof.modules.elf import open_regular
from remoteprof.profile.legacy import Name
from remoteprof.profile.model import Mapping


def names(mapping: Mapping, addresses: Sequence[int]) -> list[list[Name]]:
    """The functions at `addresses` (a program counter, or inside of a call), the innermost inlined call first; all
    empty where the file is not here, or another. The `names` of loading.load()."""
    nothing: list[list[Name]] = [[] for _ in addresses]
    if not mapping.build_id or not mapping.file.startswith("/"):
        return nothing
    try:
        descriptor = open_regular(mapping.file)
    except (OSError, ValueError):
        return nothing
    if descriptor is None:
        return nothing
    try:
        # A profile may say that an address is where it is not.
        inside = [address for address in addresses if mapping.start <= address < mapping.limit]
        told = _native.symbolize(
            descriptor, mapping.start, mapping.offset, inside, build_id=mapping.build_id, path=mapping.file, roots=["/"]
        )
    except (OSError, ValueError):
        return nothing
    finally:
        os.close(descriptor)
    if told["build_id"] != mapping.build_id:
        return nothing
    found = dict(zip(inside, told["lines"], strict=True))
    return [[Name(*line) for line in found.get(address, [])] for address in addresses]
