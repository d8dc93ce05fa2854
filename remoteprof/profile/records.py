"""Go's stream of CPU profile records → Profile.

The stream is what Go's runtime hands to runtime/pprof (runtime/cpuprof.go, proto.go): 64-bit words. First a header: 3,
a word that is ignored, the rate in Hz. Then records of 3+n words: their length, a time that is ignored, a count, and n
addresses, the leaf first, each one behind the instruction that it means. A count of 0 with exactly one address means
that as many samples as that word says were lost.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from remoteprof.errors import RemoteprofError
from remoteprof.profile.encoder import LOST, Encoder

if TYPE_CHECKING:
    from remoteprof.modules import Module
    from remoteprof.profile.deck import Symbolize
    from remoteprof.profile.model import Profile
    from remoteprof.sinks import Stream

MAX_INT64 = (1 << 63) - 1
MAX_RATE = 1_000_000_000
"""Hz; a period is a whole number of nanoseconds."""
MAX_HELD = 64 << 20
"""Bytes of distinct stacks and labels that are held; past it they are written out, and counting begins anew."""
MAX_SPOOL = 8 << 20
"""Bytes of compressed output that stay in memory; the rest goes to a temporary file."""
MAX_INLINED = 1000
"""Inlined callers that a cut stack gets back."""

_HEADER = 3
_ENTRY = 200
"""Bytes that holding a stack takes beside its words, about."""

Tags = Sequence[Mapping[str, str] | None]
"""Labels: one entry for each record, the header included; None = no labels."""
Callers = Callable[[int], Sequence[int]]
"""An address → the addresses, as in the stream, of the callers that its code was inlined into; none: not inlined."""

_Labels = tuple[tuple[str, str], ...]


class RecordError(RemoteprofError):
    """A stream that breaks the rules. `offset`: the word at which the record begins, counted from the start of the
    stream. `record`: its number; the header is 0."""

    def __init__(self, problem: str, record: int, offset: int, detail: str = "") -> None:
        place = f"record {record} at word {offset}"
        super().__init__(f"{problem}: {place}{f': {detail}' if detail else ''}")
        self.record = record
        self.offset = offset


class Records:
    """A profile in the making, fed with words as they come.

    >>> records = Records()
    >>> records.add([3, 0, 500])
    >>> records.add([5, 0, 10, 0x1001, 0x2001, 5, 0, 1, 0x1001, 0x2001])
    >>> profile = records.profile()
    >>> profile.period, [sample.values for sample in profile.samples]
    (2000000, [[11, 22000000]])
    >>> [hex(location.address) for location in profile.samples[0].locations]
    ['0x1000', '0x2000']

    Memory follows distinct stacks up to `max_held` bytes; past that a stack may get more than one sample, and the sums
    are kept.
    """

    def __init__(
        self,
        modules: Iterable[Module] = (),
        symbolize: Symbolize | None = None,
        *,
        callers: Callers | None = None,
        generics: bool = True,
        max_held: int = MAX_HELD,
        time_ns: int = 0,
    ) -> None:
        """modules: what was mapped, the main binary first; where nothing is known, one mapping takes every address.
        callers: gives a stack that was cut in the middle of inlined calls the rest of these. generics: names with their
        type arguments (`f[go.shape.int]`), not `f[...]`. time_ns: Unix time of the start."""
        self.time_ns = time_ns
        self.duration_ns = 0
        """What the profile says about its length; to be set before it is written."""
        self.period = 0
        """CPU nanoseconds of a sample; 0 before the header."""
        self.lost = 0
        """Samples that the stream says were lost."""
        self._modules = list(modules)
        self._symbolize = symbolize
        self._callers = callers
        self._generics = generics
        self._max_held = max_held
        self._counts: dict[tuple[bytes, _Labels], int] = {}
        self._held = 0
        self._total = 0
        self._word = 0
        self._record = 0
        self._finished = False
        # It lives as long as this, and is gone with it.
        self._spool = tempfile.SpooledTemporaryFile(max_size=MAX_SPOOL)  # noqa: SIM115
        self._encoder: Encoder | None = None

    def add(self, words: Sequence[int], tags: Tags | None = None) -> None:
        """Adds the next whole records; only the first call has the header. Records before a bad one stay counted.

        Raises RecordError: `truncated profile`, `malformed profile`, `mismatched profile records and tags`, or
        `profile overflow` where the sum would not fit into 64 bits.
        """
        if self._finished:
            raise RemoteprofError("the profile is finished: no records can be added")
        try:
            data = words if isinstance(words, array) and words.typecode == "Q" else array("Q", words)
        except (OverflowError, TypeError):
            raise self._error("malformed profile", "a word that is no 64-bit number") from None
        view = memoryview(data)
        left = len(data)
        tag = 0
        if not self.period:
            if left < _HEADER:
                raise self._error("truncated profile")
            if data[0] != _HEADER or data[2] == 0 or (tags is not None and not tags):
                raise self._error("malformed profile")
            if data[2] > MAX_RATE:
                raise self._error("malformed profile", f"a rate of {data[2]} Hz")
            self.period = MAX_RATE // data[2]
            left -= _HEADER
            tag = 1
            self._advance(_HEADER)
        while left:
            start = len(data) - left
            if left < _HEADER or data[start] > left:
                raise self._error("truncated profile")
            length = data[start]
            if length < _HEADER or (tags is not None and tag >= len(tags)):
                raise self._error("malformed profile")
            self._count(data[start + 2], view[start + _HEADER : start + length], tags[tag] if tags else None)
            tag += 1
            left -= length
            self._advance(length)
        if tags is not None and tag < len(tags):
            raise self._error("mismatched profile records and tags")

    def write(self, stream: Stream) -> None:
        """Writes the profile, gzipped pprof, to `stream`. No records can be added any more.

        Raises RecordError (`truncated profile`) where no header ever came.
        """
        self._finish()
        self._spool.seek(0)
        while part := self._spool.read(1 << 20):
            stream.write(part)

    def profile(self) -> Profile:
        """The profile. No records can be added any more. Raises as write()."""
        from remoteprof.formats.pprof import parse

        self._finish()
        self._spool.seek(0)
        return parse(self._spool.read())

    def _error(self, problem: str, detail: str = "") -> RecordError:
        return RecordError(problem, self._record, self._word, detail)

    def _advance(self, length: int) -> None:
        self._word += length
        self._record += 1

    def _count(self, count: int, stack: memoryview, tag: Mapping[str, str] | None) -> None:
        key = stack.tobytes()
        if count == 0 and len(stack) == 1:
            count = stack[0]
            key = b""  # an empty stack is b"\0": no number of whole words either
            lost = count
        else:
            key = key or b"\0"
            lost = 0
        if (self._total + count) * self.period > MAX_INT64:
            raise self._error("profile overflow", "the sum does not fit into 64 bits")
        self._total += count
        self.lost += lost
        labels: _Labels = tuple(sorted(tag.items())) if tag else ()
        before = self._counts.get((key, labels))
        self._counts[key, labels] = count + (before or 0)
        if before is None:
            self._held += len(key) + _ENTRY + sum(len(name) + len(value) + _ENTRY for name, value in labels)
            if self._held > self._max_held:
                self._spill()

    def _spill(self) -> None:
        """Writes what is held as samples."""
        if self._encoder is None:
            self._encoder = Encoder(self._spool, self.period, self._modules, self._symbolize, self._generics)
        for (key, labels), count in self._counts.items():
            self._encoder.sample(self._stack(key), count, labels)
        self._counts.clear()
        self._held = 0

    def _stack(self, key: bytes) -> Sequence[int]:
        if not key:
            return (LOST,)
        if key == b"\0":
            return ()
        stack = array("Q", key)
        if self._callers is not None:
            stack.extend(self._callers(max(stack[-1] - 1, 0))[:MAX_INLINED])
        return stack

    def _finish(self) -> None:
        if self._finished:
            return
        if not self.period:
            raise self._error("truncated profile", "there is no header")
        self._spill()
        assert self._encoder is not None
        self._encoder.finish(self.time_ns, self.duration_ns)
        self._finished = True
