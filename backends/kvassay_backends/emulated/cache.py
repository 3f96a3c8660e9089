"""A cache that lives in a server."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from kvassay.backend.checks import (
    check_append,
    check_layer,
    check_queries,
    check_score_query,
    check_tokens,
)
from kvassay.protocol import BYTE_PARTS, Cache, Counters, FloatArray, require_open
from kvassay.spec import Spec

from .link import Command, Link


class EmulatedCache(Cache):
    """A cache by its number; closed by `close` or with this object."""

    def __init__(self, spec: Spec, link: Link, number: int) -> None:
        self.spec = spec
        self._link = link
        self._number = number
        self._forget = weakref.finalize(self, link.forget, number)
        self._forget.atexit = False

    def _call(self, command: Command, *data: bytes, layer: int = 0, count: int = 0) -> bytes:
        require_open(not self._forget.alive)
        return self._link.call(command, *data, cache=self._number, layer=layer, count=count)

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        require_open(not self._forget.alive)
        layer = check_layer(self.spec, layer)
        keys, values = check_append(self.spec, layer, k, v)
        if len(keys):
            data = (keys.tobytes(), values.tobytes())
            self._call(Command.APPEND, *data, layer=layer, count=len(keys))

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        layer = check_layer(self.spec, layer)
        queries = check_queries(self.spec, layer, q, self.lengths[layer])
        reply = self._call(Command.ATTEND, queries.tobytes(), layer=layer, count=len(queries))
        return _floats(reply, q.shape)

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        layer = check_layer(self.spec, layer)
        length = self.lengths[layer]
        query = check_score_query(self.spec, layer, q, length)
        reply = self._call(Command.SCORES, query.tobytes(), layer=layer)
        return _floats(reply, (self.spec.query_heads, length))

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(np.frombuffer(self._call(Command.LENGTHS), "<u8").tolist())

    def _stats(self) -> Any:
        return self._link.ffi.from_buffer("kv_stats *", self._call(Command.STATS))

    @property
    def nbytes(self) -> dict[str, int]:
        stats = self._stats()
        return {part: getattr(stats, part) for part in BYTE_PARTS}

    @property
    def counters(self) -> Counters:
        stats = self._stats()
        ran = (name for i, name in enumerate(self._link.variants) if stats.ran >> i & 1)
        return Counters(
            pages_encoded=stats.pages_encoded,
            pages_scanned=stats.pages_scanned,
            variants_ran=tuple(ran),
            peak_bytes=stats.peak_allocated,
        )

    def pages(self, layer: int) -> list[bytes]:
        layer = check_layer(self.spec, layer)
        reply = self._call(Command.PAGES, layer=layer)
        size = int.from_bytes(reply[:8], "little")
        return [reply[at : at + size] for at in range(8, len(reply), size or 1)]

    def truncate(self, n: int) -> None:
        require_open(not self._forget.alive)
        self._call(Command.TRUNCATE, count=check_tokens(n, self.length))

    def fork(self) -> EmulatedCache:
        number = int.from_bytes(self._call(Command.FORK), "little")
        return EmulatedCache(self.spec, self._link, number)

    def reset(self) -> None:
        self._call(Command.RESET)

    def close(self) -> None:
        if self._forget.detach():
            self._link.call(Command.CLOSE, cache=self._number)

    def dump_bytes(self) -> bytes:
        return self._call(Command.DUMP)


def _floats(reply: bytes, shape: tuple[int, ...]) -> FloatArray:
    return np.frombuffer(reply, "<f4").astype(np.float32).reshape(shape)
