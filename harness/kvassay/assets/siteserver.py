"""A web server for a fixed set of files: what is not in the set does not exist for it."""

from __future__ import annotations

import shutil
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final
from urllib.parse import unquote, urlsplit

from ..errors import InputError
from .files import Files

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".svg": "image/svg+xml",
}


class SiteServer(ThreadingHTTPServer):
    """Serves `files` at `host`:`port`; port 0 takes a free one. Raises InputError if it cannot."""

    daemon_threads = True

    def __init__(self, files: Files, host: str = "127.0.0.1", port: int = 0) -> None:
        self.files = files
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise InputError(
                f"cannot serve at {host}:{port}: {error.strerror or error}; give another --port or "
                f"--host"
            ) from None

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{self.server_address[0]!s}:{self.server_port}/"

    def welcomes(self, host: str) -> bool:
        """Whether a request with this Host header may be answered.

        A server on loopback answers to names of loopback alone, so that a page of another site
        cannot read from it under a name of its own.
        """
        local = str(self.server_address[0]) in LOOPBACK
        return not local or urlsplit(f"//{host}").hostname in LOOPBACK


class _Handler(BaseHTTPRequestHandler):
    server: SiteServer
    protocol_version = "HTTP/1.1"
    server_version = "kvassay"

    def do_GET(self) -> None:
        found = self._found()
        if found is not None:
            with found:
                shutil.copyfileobj(found, self.wfile)

    def do_HEAD(self) -> None:
        found = self._found()
        if found is not None:
            found.close()

    def _found(self) -> BinaryIO | None:
        """The file asked for, with its headers sent; None after an error was sent."""
        if not self.server.welcomes(self.headers.get("Host", "")):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return None
        name = unquote(urlsplit(self.path).path).removeprefix("/") or "index.html"
        content = self.server.files.get(name)
        if content is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        try:
            stream: BinaryIO = (
                BytesIO(content) if isinstance(content, bytes) else content.open("rb")
            )
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        self.send_response(HTTPStatus.OK)
        kind = _TYPES.get(PurePosixPath(name).suffix, "application/octet-stream")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(_size(content)))
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        return stream

    def log_message(self, format: str, *args: object) -> None:
        """Requests are nobody's business; errors reach the browser."""


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size
