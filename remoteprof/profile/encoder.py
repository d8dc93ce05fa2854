"""Stacks of addresses → a gzipped pprof message, written while it grows.

The order is that of runtime/pprof: each location before the first sample that has it, its functions right behind it,
mappings and strings at the end. What is kept follows distinct addresses and names; samples are not kept at all.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from typing import IO, NamedTuple

from remoteprof.errors import RemoteprofError
from remoteprof.formats import profile_pb2 as pb
from remoteprof.formats.pprof import utf8
from remoteprof.modules import FAKE, Module
from remoteprof.profile.deck import Deck, Expansion, Frame, Symbolize, expand
from remoteprof.profile.model import ValueType
from remoteprof.profile.ranges import Ranges

PART = 4096
"""Bytes that are gathered before they are compressed, between messages."""
MAX_LOCATIONS = 1 << 20
"""Distinct addresses of one profile; a large program has some ten thousand."""
MAX_STRINGS = 256 << 20
"""Characters of all names and labels of one profile."""
LOST = -1
"""In place of an address: samples that were lost, because there was no room for them."""
LOST_NAME = "lostProfileEvent"

_TYPE_ARGUMENTS = re.compile(r"\[.*\]", re.DOTALL)


class _Known(NamedTuple):
    """A location that was written: its id, the number of addresses that it stands for, and the first one's frames."""

    number: int
    length: int
    first: Expansion


class _Place:
    """A mapping, and what was found at the addresses in it."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.tried = False
        self.functions = self.files = self.lines = True
        self.inlined = False

    def look(self, deck: Deck) -> None:
        """Counts a location in."""
        self.tried |= deck.tried
        self.functions &= not deck.failed
        self.files &= all(frame.file for frame in deck.frames)
        self.lines &= all(frame.line > 0 for frame in deck.frames)
        self.inlined |= len(deck.frames) > 1


class Encoder:
    """One profile in the making, of the sample types `samples/count` and `cpu/nanoseconds`."""

    def __init__(
        self,
        stream: IO[bytes],
        period: int,
        modules: Sequence[Module],
        symbolize: Symbolize | None,
        generics: bool,
    ) -> None:
        """period: CPU nanoseconds of a sample. generics: write the type arguments of names such as `f[go.shape.int]`,
        instead of `f[...]`."""
        self._stream = gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=stream, mtime=0)
        self._pending = bytearray()
        self._symbolize = symbolize
        self._generics = generics
        self._period = period
        self._places = [_Place(module) for module in modules] or [_Place(FAKE)]
        self._ranges = Ranges((place.module.start, place.module.end) for place in self._places)
        # It takes every address.
        self._fake = self._places[0].module == FAKE
        self._strings: dict[str, int] = {"": 0}
        self._texts = [""]
        self._string_length = 0
        self._empty = 0
        self._functions: dict[str, int] = {}
        self._known: dict[int, _Known] = {}
        # Address → id, of those locations that stand for it alone.
        self._alone: dict[int, int] = {}
        self._expansions: dict[int, Expansion] = {}
        self._deck = Deck()
        count, cpu = (
            self._value_type(*kind) for kind in (ValueType("samples", "count"), ValueType("cpu", "nanoseconds"))
        )
        self._write(pb.Profile(sample_type=[count, cpu], period_type=cpu, period=period))

    def sample(self, stack: Sequence[int], count: int, labels: Sequence[tuple[str, str]]) -> None:
        """Writes a sample. `stack`: addresses as Go's runtime gives them, each one behind the instruction that is
        meant; or LOST alone."""
        message = pb.Sample(location_id=self._locations(stack), value=[count, count * self._period])
        for key, value in labels:
            message.label.add(key=self._string(key), str=self._string(value) or self._empty_text())
        self._write(pb.Profile(sample=[message]))

    def finish(self, time_ns: int, duration_ns: int) -> None:
        """Writes what comes last, and ends the stream's gzip member."""
        for number, place in enumerate(self._places, 1):
            module = place.module
            has_functions = place.tried and place.functions
            message = pb.Mapping(
                id=number,
                memory_start=module.start,
                memory_limit=module.end,
                file_offset=module.offset,
                filename=self._string(module.path),
                build_id=self._string(module.build_id),
                has_functions=has_functions,
                has_filenames=has_functions and place.files,
                has_line_numbers=has_functions and place.lines,
                has_inline_frames=has_functions and place.inlined,
            )
            self._write(pb.Profile(mapping=[message]))
        self._write(pb.Profile(time_nanos=time_ns, duration_nanos=duration_ns))
        for text in self._texts:
            self._write(pb.Profile(string_table=[utf8(text)]))
        self._stream.write(self._pending)
        self._stream.close()

    def _write(self, part: pb.Profile) -> None:
        self._pending += part.SerializeToString()
        if len(self._pending) > PART:
            self._stream.write(self._pending)
            self._pending.clear()

    def _string(self, text: str) -> int:
        number = self._strings.get(text)
        if number is None:
            self._string_length += len(text)
            if self._string_length > MAX_STRINGS:
                raise RemoteprofError(f"more than {MAX_STRINGS >> 20} MiB of names", "this is not a program's profile")
            number = self._strings[text] = len(self._texts)
            self._texts.append(text)
        return number

    def _empty_text(self) -> int:
        """A second "" for labels: to refer to the first one is to have no text."""
        if not self._empty:
            self._empty = len(self._texts)
            self._texts.append("")
        return self._empty

    def _value_type(self, kind: str, unit: str) -> pb.ValueType:
        return pb.ValueType(type=self._string(kind), unit=self._string(unit))

    def _expand(self, address: int) -> Expansion:
        if address == LOST:
            return Expansion((Frame(LOST_NAME),), False, False)
        found = self._expansions.get(address)
        if found is None:
            if len(self._expansions) >= MAX_LOCATIONS:
                raise RemoteprofError(
                    f"more than {MAX_LOCATIONS} distinct addresses", "this is not a program's profile"
                )
            found = self._expansions[address] = expand(_inside(address), self._symbolize)
        return found

    def _locations(self, stack: Sequence[int]) -> list[int]:
        # All were met before, and none can go into the deck: what the loop would come to.
        found = list(map(self._alone.get, stack))
        if None not in found:
            return found  # type: ignore[return-value]
        deck, numbers, position = self._deck, list[int](), 0
        while position < len(stack):
            address = stack[position]
            known = self._known.get(address)
            if known is None:
                expansion = self._expand(address)
                if expansion.frames and deck.add(address, expansion):
                    position += 1
                    continue
                self._emit(numbers)
                # What was written just now may begin at this very address.
                known = self._known.get(address)
                if known is None:
                    if expansion.frames:
                        deck.add(address, expansion)
                    position += 1
                    continue
            elif deck.addresses:
                # The location was written for a sample in a no-op, which may be an inlined caller here.
                if deck.add(address, known.first):
                    position += 1
                    continue
                self._emit(numbers)
            numbers.append(known.number)
            position += known.length
        self._emit(numbers)
        return numbers

    def _emit(self, numbers: list[int]) -> None:
        """Writes the location in the deck, if there is one, and adds its id."""
        deck = self._deck
        if not deck.addresses:
            return
        address = deck.addresses[0]
        number = len(self._known) + 1
        self._known[address] = _Known(number, len(deck.addresses), deck.first)
        if len(deck.addresses) == 1:
            self._alone[address] = number
        location = pb.Location(id=number)
        if address != LOST:
            location.address = _inside(address)
            location.mapping_id = self._mapping(location.address)
        functions = []
        for frame in deck.frames:
            if not frame.function:
                continue
            of = self._functions.get(frame.function)
            if of is None:
                of = self._functions[frame.function] = len(self._functions) + 1
                functions.append(self._function(of, frame))
            location.line.add(function_id=of, line=max(frame.line, 0))
        self._write(pb.Profile(location=[location]))
        for function in functions:
            self._write(pb.Profile(function=[function]))
        numbers.append(number)
        deck.clear()

    def _mapping(self, address: int) -> int:
        """The id of the mapping that holds an address, 0 = none; counts in what was found there."""
        number = 0 if self._fake else self._ranges.find(address)
        if number is None:
            return 0
        self._places[number].look(self._deck)
        return number + 1

    def _function(self, number: int, frame: Frame) -> pb.Function:
        name = frame.function if self._generics else _TYPE_ARGUMENTS.sub("[...]", frame.function)
        return pb.Function(
            id=number,
            name=self._string(name),
            system_name=self._string(name),
            filename=self._string(frame.file),
            start_line=max(frame.start_line, 0),
        )


def _inside(address: int) -> int:
    return max(address - 1, 0)
