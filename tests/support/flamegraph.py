"""The profile out of a flame graph's HTML, read as flamegraph.py says it is laid out, with nothing of remoteprof's."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections import Counter
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """The elements of the page, the text of its title and its profile."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.policy = ""
        self.texts: dict[str, str] = {}
        self._in = ""
        self.feed(content.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        given = dict(attrs)
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""
        if tag in ("script", "style", "title", "h1"):
            self._in = given.get("id") or tag
            self.texts.setdefault(self._in, "")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in:
            self.texts[self._in] += data


class Embedded:
    """What is embedded in the page. `rows`: (names root first, labels by key, values)."""

    def __init__(self, content: bytes) -> None:
        self._content = zlib.decompress(base64.b64decode(Page(content).texts["profile"], validate=True))
        (length,) = struct.unpack_from("<Q", self._content)
        self.head: dict[str, Any] = json.loads(self._content[8 : 8 + length])
        self._at = 8 + (length + 7) // 8 * 8
        counts, keys = self.head["counts"], self.head["keys"]
        columns = [self._take("q", counts["rows"]) for _ in self.head["types"]]
        row_stack, row_set = self._take("I", counts["rows"]), self._take("I", counts["rows"])
        chosen = self._take("I", counts["sets"] * len(keys))
        shared, lengths = self._take("I", counts["stacks"]), self._take("I", counts["stacks"])
        frames = self._take("I", counts["newFrames"])
        assert self._at == len(self._content), "something follows the arrays"
        stacks: list[list[str]] = []
        at = 0
        for same, size in zip(shared, lengths, strict=True):
            stack = stacks[-1][:same] if same else []
            stack += [self.name(frame) for frame in frames[at : at + size - same]]
            at += size - same
            stacks.append(stack)
        self.rows = []
        for row, (number, label_set) in enumerate(zip(row_stack, row_set, strict=True)):
            numbers = chosen[label_set * len(keys) : (label_set + 1) * len(keys)]
            labels = {key["name"]: key["values"][n - 1] for key, n in zip(keys, numbers, strict=True) if n}
            self.rows.append((tuple(stacks[number]), labels, tuple(column[row] for column in columns)))

    def name(self, frame: int) -> str:
        name: str = self.head["strings"][self.head["frames"][frame][0]]
        return name

    def _take(self, kind: str, count: int) -> tuple[int, ...]:
        form = f"<{count}{kind}"
        values = struct.unpack_from(form, self._content, self._at)
        self._at += struct.calcsize(form)
        return values
