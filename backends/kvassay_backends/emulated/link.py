"""A server in a child process, and calls to it (the protocol: backends/src/server/serve.c)."""

from __future__ import annotations

import atexit
import contextlib
import os
import struct
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from kvassay.errors import StateError, UnavailableError

from ..native.abi import interface
from ..native.failures import failure

_MAGIC: Final = 0x5153564B
#: Seconds that a server which closed its output may take to end.
_GRACE: Final = 5
#: Magic, command or code, cache, layer, count, bytes of data.
_HEAD: Final = struct.Struct("<IiIIQQ")


class Command(IntEnum):
    """What the server does."""

    HELLO = 0
    RUNS = 1
    SUPPORTS = 2
    CREATE = 3
    RESTORE = 4
    APPEND = 5
    ATTEND = 6
    SCORES = 7
    LENGTHS = 8
    PAGES = 9
    TRUNCATE = 10
    FORK = 11
    RESET = 12
    CLOSE = 13
    DUMP = 14
    STATS = 15


class Link:
    """One server process; it ends with this process.

    `command` starts it, and its last part is the server's file. Raises UnavailableError where it
    cannot be started or dies. `path`, `lib` and `text` are what errors are made from.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.path = Path(command[-1])
        self.ffi = interface()
        self.lib: Any = self.ffi.dlopen(None)  # for the header's constants
        self._lock = threading.Lock()
        self._lost: deque[int] = deque()  # caches that were collected: closed by the next call
        self._owner = os.getpid()
        pipe = subprocess.PIPE
        try:
            self._server = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        except OSError as error:
            raise UnavailableError(f"cannot start {' '.join(command)}: {error}") from None
        atexit.register(self.close)
        hello = self.call(Command.HELLO)
        self.info: dict[str, int] = dict(
            zip(
                ("abi_version", "contract_version", "page_version", "dump_version", "flags"),
                struct.unpack_from("<5I", hello),
                strict=True,
            )
        )
        self.build_id, *names = hello[24:].decode().split("\0")[:-1]
        #: Names by number, from the most portable to the fastest.
        self.variants: tuple[str, ...] = tuple(names)

    def call(
        self, command: Command, *data: bytes, cache: int = 0, layer: int = 0, count: int = 0
    ) -> bytes:
        """The data of the reply; the server's refusal as an error of kvassay."""
        if os.getpid() != self._owner:
            raise StateError("the cache belongs to another process: a fork cannot use its server")
        with self._lock:
            while self._lost:
                self._exchange(Command.CLOSE, (), self._lost.popleft(), 0, 0)
            code, reply = self._exchange(command, data, cache, layer, count)
        if code != self.lib.KV_OK:
            raise failure(self, code, self.ffi.from_buffer("kv_error *", reply))
        return reply

    def forget(self, cache: int) -> None:
        """Close a cache with the next call: a collector may come in the midst of one."""
        self._lost.append(cache)

    def text(self, value: Any) -> str:
        """A C string as text."""
        return bytes(self.ffi.string(value)).decode("utf-8", "replace")

    def _exchange(
        self, command: Command, data: Sequence[bytes], cache: int, layer: int, count: int
    ) -> tuple[int, bytes]:
        assert self._server.stdin is not None
        size = sum(map(len, data))
        head = _HEAD.pack(_MAGIC, command, cache, layer, count, size)
        try:
            for part in (head, *data):
                self._server.stdin.write(part)
            self._server.stdin.flush()
            magic, code, _, _, _, size = _HEAD.unpack(self._read(_HEAD.size))
            if magic == _MAGIC:
                return code, self._read(size)
        except (BrokenPipeError, EOFError):
            pass
        raise UnavailableError(f"{self.path.name}, at {command.name}: {self._cause_of_death()}")

    def _read(self, size: int) -> bytes:
        assert self._server.stdout is not None
        found: bytes = self._server.stdout.read(size)
        if len(found) != size:
            raise EOFError
        return found

    def _cause_of_death(self) -> str:
        assert self._server.stderr is not None
        try:
            status = self._server.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._server.kill()
            status = self._server.wait()
        said = self._server.stderr.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"the server died with status {status}: {''.join(said) or 'it said nothing'}"

    def close(self) -> None:
        """End the server."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        with contextlib.suppress(BrokenPipeError):  # of one that died
            self._server.__exit__(None, None, None)  # the end of its input ends it
