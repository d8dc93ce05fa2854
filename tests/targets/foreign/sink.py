"""A Pyroscope server's part, on this machine only: sink.py DIRECTORY keeps each profile that a client uploads."""

from __future__ import annotations

import email.parser
import email.policy
import gzip
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DIRECTORY = Path(sys.argv[1])


def number(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 128:
            return value, at


def nested(content: bytes, field: int) -> Iterator[bytes]:
    """The messages in this field of a protobuf message that has no other kinds of field."""
    at = 0
    while at < len(content):
        tag, at = number(content, at)
        size, at = number(content, at)
        if tag == field << 3 | 2:
            yield content[at : at + size]
        at += size


def parts(kind: str, content: bytes) -> Iterator[bytes]:
    head = f"Content-Type: {kind}\r\n\r\n".encode()
    for part in email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + content).iter_parts():
        if part.get_param("name", header="content-disposition") == "profile":
            yield part.get_payload(decode=True)


def profiles(path: str, kind: str, content: bytes) -> Iterator[bytes]:
    if path.startswith("/push.v1.PusherService/"):
        for series in nested(content, 1):
            for sample in nested(series, 2):
                yield from nested(sample, 1)
    elif kind.startswith("multipart/"):
        yield from parts(kind, content)
    else:
        yield content


class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    kept = 0

    def body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def do_POST(self) -> None:
        content = self.body()
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        for profile in profiles(self.path, self.headers.get("Content-Type", ""), content):
            Sink.kept += 1
            (DIRECTORY / f"{Sink.kept:03}").write_bytes(profile)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
(DIRECTORY / "port").write_text(str(server.server_port))
server.serve_forever()
