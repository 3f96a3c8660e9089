"""A loopback server that hands out files and, call by call, commands to one JavaScript engine.

The engine asks for the next command with the reply to the last one as its question, so that every
engine is driven alike, without a driver of its own.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
import queue
import secrets
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from kvassay.errors import KvassayError

#: Seconds the server lets a question wait before it answers "idle".
_POLL: Final = 20.0
_ALIVE_EVERY: Final = 1.0
_SIZE: Final = struct.Struct("<I")

Head = dict[str, Any]


class EngineError(KvassayError):
    """The engine died, did not answer, or answered nonsense; nothing was measured."""


class EngineFailure(KvassayError):
    """A command raised inside the engine; `head` is its error as plain data."""

    def __init__(self, head: Mapping[str, Any]) -> None:
        super().__init__(f"{head.get('name')}: {head.get('message')}")
        self.head = head


def encode(head: Mapping[str, Any], parts: Sequence[bytes] = ()) -> bytes:
    """A message: u32 length of the JSON head, the head with the sizes of the parts, the parts."""
    digests = [hashlib.sha256(part).hexdigest() for part in parts]
    full = {**head, "sizes": [len(part) for part in parts], "digests": digests}
    text = json.dumps(full).encode()
    return b"".join((_SIZE.pack(len(text)), text, *parts))


def decode(data: bytes) -> tuple[Head, list[bytes]]:
    """The inverse; raises EngineError where sizes do not fit."""
    (size,) = _SIZE.unpack_from(data)
    head: Head = json.loads(data[4 : 4 + size])
    parts, at = [], 4 + size
    for length in head.pop("sizes"):
        parts.append(data[at : at + length])
        at += length
    if at != len(data):
        raise EngineError(f"the engine's reply has {len(data)} bytes, its head says {at}")
    return head, parts


class Link:
    """The server. `folders` maps a first path component to the folder it serves.

    A context manager; `url` is where the page is. `alive` is asked while a reply is awaited and
    returns what happened to the engine, "" while it runs.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.folders = dict(folders)
        self.agent = ""
        self.alive: Callable[[], str] = lambda: ""
        self._commands: queue.Queue[bytes] = queue.Queue()
        self._replies: queue.Queue[bytes] = queue.Queue()
        # Other pages on this machine can reach a loopback port, but not guess this.
        self.secret = secrets.token_urlsafe(16)
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def root(self) -> str:
        """The address below which everything is."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{self.secret}/"

    def __enter__(self) -> Link:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def stop(self) -> None:
        """Tell the engine to ask no more."""
        self._commands.put(encode({"command": "stop"}))

    def greet(self, timeout: float = 60.0) -> None:
        """Wait for the engine; `agent` is then its name for itself."""
        head, _ = self._reply(timeout)
        self.agent = str(head["engine"])

    def call(
        self, command: str, parts: Sequence[bytes] = (), timeout: float = 300.0, **fields: Any
    ) -> tuple[Head, list[bytes]]:
        """Carry out a command in the engine.

        Raises EngineFailure for an error of the command, EngineError where no answer came.
        """
        return self.send(encode({"command": command, **fields}, parts), timeout)

    def send(self, message: bytes, timeout: float = 300.0) -> tuple[Head, list[bytes]]:
        """The same for a command that is encoded already."""
        self._commands.put(message)
        head, found = self._reply(timeout)
        if not head.pop("ok"):
            raise EngineFailure(head)
        return head, found

    def _reply(self, timeout: float) -> tuple[Head, list[bytes]]:
        waited = 0.0
        while True:
            try:
                return decode(self._replies.get(timeout=_ALIVE_EVERY))
            except queue.Empty:
                waited += _ALIVE_EVERY
            if reason := self.alive():
                raise EngineError(f"the engine ended: {reason}")
            if waited >= timeout:
                raise EngineError(f"the engine gave no answer within {timeout:g} s")

    def exchange(self, reply: bytes) -> bytes:
        """What a handler does with a question: keep the reply, wait for the next command."""
        if not decode(reply)[0].get("idle"):
            self._replies.put(reply)
        try:
            return self._commands.get(timeout=_POLL)
        except queue.Empty:
            return encode({"command": "idle"})

    def file(self, path: str) -> Path | None:
        """The file of a path below the secret, None if there is none."""
        first, _, rest = path.partition("/")
        folder = self.folders.get(first)
        if folder is None:
            return None
        found = (folder / rest).resolve()
        inside = found.is_relative_to(folder.resolve())
        return found if inside and found.is_file() else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An engine that went away in the middle of an answer is known from `alive`."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _handler(link: Link) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self._path()
            found = link.file(path) if path is not None else None
            if found is None:
                self.send_error(404)
            else:
                self._send(found.read_bytes(), _content_type(found))

        def do_POST(self) -> None:
            path = self._path()
            if path is None or not path.endswith("next"):
                self.send_error(404)
                return
            reply = self.rfile.read(int(self.headers["Content-Length"]))
            self._send(link.exchange(reply), "application/octet-stream")

        def _path(self) -> str | None:
            prefix = f"/{link.secret}/"
            path = self.path.partition("?")[0]
            return path.removeprefix(prefix) if path.startswith(prefix) else None

        def _send(self, body: bytes, content_type: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the runner's output is not for requests."""

    return Handler


def _content_type(path: Path) -> str:
    known = {".mjs": "text/javascript", ".wasm": "application/wasm"}
    return known.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "text/plain"
