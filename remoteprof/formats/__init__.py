"""Formats: how a profile becomes bytes. One module and one row of FORMATS each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from remoteprof.errors import UsageError
from remoteprof.profile.model import Profile
from remoteprof.sinks import Stream, open_sink


class Format(NamedTuple):
    """A format; `write(profile, stream, suffix)` writes the variant of the format that `suffix` names."""

    suffixes: tuple[str, ...]
    """The default one first."""
    media_type: str
    write: Callable[[Profile, Stream, str], None]
    opener: str
    """The command or place that opens a file of it; `{}` is the path, quoted for a shell."""


def _pprof(profile: Profile, stream: Stream, suffix: str) -> None:
    # Imported on use: protobuf takes longer to load than a sampler to start.
    from remoteprof.formats.pprof import write

    write(profile, stream, compress=suffix != ".pb")


def _folded(profile: Profile, stream: Stream, suffix: str) -> None:
    from remoteprof.formats.folded import write

    write(profile, stream)


def _speedscope(profile: Profile, stream: Stream, suffix: str) -> None:
    from remoteprof.formats.speedscope import write

    write(profile, stream)


def _flamegraph(profile: Profile, stream: Stream, suffix: str) -> None:
    if suffix == ".svg":
        from remoteprof.formats.svg import write
    else:
        from remoteprof.formats.flamegraph import write
    write(profile, stream)


def _gecko(profile: Profile, stream: Stream, suffix: str) -> None:
    from remoteprof.formats.gecko import write

    write(profile, stream)


FORMATS: dict[str, Format] = {
    "pprof": Format((".pb.gz", ".pb"), "application/vnd.google.protobuf+gzip", _pprof, "go tool pprof -http=: {}"),
    "folded": Format((".folded", ".txt"), "text/plain; charset=utf-8", _folded, "less {}"),
    "speedscope": Format((".speedscope.json",), "application/json", _speedscope, "npx speedscope {}"),
    "flamegraph": Format((".html", ".svg"), "text/html; charset=utf-8", _flamegraph, "xdg-open {}"),
    "gecko": Format((".gecko.json",), "application/json", _gecko, "load {} at https://profiler.firefox.com"),
}


def choose(path: str, name: str | None = None) -> tuple[Format, str]:
    """The format for the output `path` and the suffix that decides its variant: the one named, else by suffix, else
    pprof. Raises UsageError for an unknown name."""
    if name is not None and name not in FORMATS:
        raise UsageError(f"unknown format {name!r}", f"known formats: {', '.join(FORMATS)}")
    for known, form in FORMATS.items():
        if name not in (None, known):
            continue
        for suffix in form.suffixes:
            if path.endswith(suffix):
                return form, suffix
    form = FORMATS[name or "pprof"]
    return form, form.suffixes[0]


def save(profile: Profile, path: str, name: str | None = None) -> int:
    """Writes `profile` to `path` ("-" = stdout) and gives the number of bytes. Raises OutputError, UsageError."""
    form, suffix = choose(path, name)
    return open_sink(path).write(lambda stream: form.write(profile, stream, suffix))
