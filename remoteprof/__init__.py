"""remoteprof: a sampling profiler that works from outside.

    profile = remoteprof.record(pid, duration=10)
    profile.save("app.pb.gz")

The names here are the public ones. Nothing is printed, and no signal handler or thread is left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remoteprof.errors import (
    AlreadyTraced,
    CheckFailed,
    NothingToProfile,
    OutputError,
    PermissionDenied,
    ProcessNotFound,
    RemoteprofError,
    SamplerDied,
    UsageError,
)

if TYPE_CHECKING:
    from remoteprof.profile.model import Profile
    from remoteprof.session import dump, record

__version__ = "0.1.0"
__all__ = [
    "AlreadyTraced",
    "CheckFailed",
    "NothingToProfile",
    "OutputError",
    "PermissionDenied",
    "ProcessNotFound",
    "Profile",
    "RemoteprofError",
    "SamplerDied",
    "UsageError",
    "dump",
    "record",
]

_HOMES = {"Profile": "remoteprof.profile.model", "dump": "remoteprof.session", "record": "remoteprof.session"}


def __getattr__(name: str) -> object:
    # Loaded on use: the command line must reach its sampler before anything else is imported.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return globals().setdefault(name, getattr(import_module(_HOMES[name]), name))
