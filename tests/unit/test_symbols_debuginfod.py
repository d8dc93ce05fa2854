"""Debug files from a debuginfod server, which here is one on loopback."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.symbols import address_of, build, running

from remoteprof import _native, debuginfod
from remoteprof.debuginfod import Debuginfod
from remoteprof.symbols import Symbols

ID = "00112233445566778899aabbccddeeff00112233"


class Server(ThreadingHTTPServer):
    """Answers with `files` by path; counts what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.status = 404
        self.short = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        content = self.server.files.get(self.path)
        self.send_response(self.server.status if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"") + 10 * self.server.short))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def content(descriptor: int | None) -> bytes | None:
    if descriptor is None:
        return None
    try:
        return os.read(descriptor, 1 << 20)
    finally:
        os.close(descriptor)


def test_a_file_is_fetched_once(server: Server, tmp_path: Path) -> None:
    server.files[f"/buildid/{ID}/debuginfo"] = b"debug"
    client = Debuginfod([server.url], tmp_path)
    assert content(client.fetch(ID)) == b"debug"
    assert content(client.fetch(ID)) == b"debug"
    assert len(server.asked) == 1
    assert [path.name for path in (tmp_path / ID).iterdir()] == ["debuginfo"]


def test_a_miss_is_remembered_for_a_while(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Debuginfod([server.url], tmp_path)
    assert client.fetch(ID) is None
    assert client.fetch(ID) is None
    assert len(server.asked) == 1
    monkeypatch.setattr(debuginfod, "MISS_SECONDS", 0.0)
    server.files[f"/buildid/{ID}/debuginfo"] = b"late"
    assert content(client.fetch(ID)) == b"late"


def test_a_failing_server_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.status = 500
    client = Debuginfod(["http://127.0.0.1:1", server.url], tmp_path)
    assert client.fetch(ID) is None
    assert client.fetch(ID) is None
    assert len(server.asked) == 2
    assert list((tmp_path / ID).iterdir()) == []


def test_half_a_file_is_not_kept(server: Server, tmp_path: Path) -> None:
    server.files[f"/buildid/{ID}/debuginfo"] = b"debug"
    server.short = True
    assert Debuginfod([server.url], tmp_path).fetch(ID) is None
    assert list((tmp_path / ID).iterdir()) == []


def test_a_file_over_its_bound_is_not_kept(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files[f"/buildid/{ID}/debuginfo"] = b"debug"
    monkeypatch.setattr(debuginfod, "MAX_BYTES", 3)
    assert Debuginfod([server.url], tmp_path).fetch(ID) is None
    assert list((tmp_path / ID).iterdir()) == []


def test_only_http_and_only_hex(server: Server, tmp_path: Path) -> None:
    assert Debuginfod(["file:///etc", "ftp://x"], tmp_path).urls == []
    client = Debuginfod([server.url], tmp_path)
    assert client.fetch("../../etc/passwd") is None
    assert client.fetch("") is None
    assert server.asked == []


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://one/ http://two")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.delenv("DEBUGINFOD_CACHE_PATH", raising=False)
    client = Debuginfod.from_environment()
    assert (client.urls, client.cache) == (["http://one", "http://two"], Path("/cache/debuginfod_client"))
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", "/own")
    assert Debuginfod.from_environment().cache == Path("/own")


def test_names_from_a_server(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = build(tmp_path, "-Wl,--build-id", name="full")
    path = tmp_path / "program"
    subprocess.run(["objcopy", "-S", full, path], check=True)
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    with running(path) as target:
        start = address_of(target, path, "outer")
        mappings = target.mappings()
        assert Symbols(target).lines(mappings, [start]) == {}
        assert server.asked == []
        descriptor = os.open(path, os.O_RDONLY)
        build_id = _native.symbolize(descriptor, 0, 0, [])["build_id"]
        os.close(descriptor)
        server.files[f"/buildid/{build_id}/debuginfo"] = full.read_bytes()
        monkeypatch.setenv("DEBUGINFOD_URLS", server.url)
        line = Symbols(target).lines(mappings, [start])[start][-1]
        assert (line.name, line.file) == ("outer", str(tmp_path / "program.c"))
