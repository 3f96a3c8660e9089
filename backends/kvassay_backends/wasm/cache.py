"""A cache whose pages live in the linear memory of a module."""

from __future__ import annotations

import struct
import weakref
from typing import Final

import numpy as np

from kvassay.backend.checks import (
    check_append,
    check_layer,
    check_queries,
    check_score_query,
    check_tokens,
)
from kvassay.page.layout import PageLayout
from kvassay.protocol import BYTE_PARTS, Cache, Counters, FloatArray, require_open
from kvassay.spec import LayerSpec, Spec

from .faults import ModuleFault
from .instance import STAGING, Instance
from .layout import layout
from .memory import PAGE

_FLOAT: Final = 4
_HALF: Final = 2
_POINTER: Final = 4
#: What the allocator rounds sizes to.
_GRAIN: Final = 64


class WasmCache(Cache):
    """A `kv_cache *` of an instance. Forks share the instance; it goes with the last of them."""

    def __init__(self, spec: Spec, instance: Instance, pointer: int) -> None:
        self.spec = spec
        self.instance = instance
        self.pointer = pointer
        self._closed = False
        self._destroy = weakref.finalize(self, _destroy, instance, pointer)
        self._destroy.atexit = False

    def _open(self) -> int:
        require_open(self._closed)
        return self.pointer

    def _length(self, layer: int) -> int:
        return self.instance.call("kv_cache_length", self._open(), layer)

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        self._open()
        layer = check_layer(self.spec, layer)
        keys, values = check_append(self.spec, layer, k, v)
        step = self._step(layer)
        if len(keys) > step:
            self._reserve(layer, len(keys))
        for start in range(0, len(keys), step):
            self._append(layer, keys[start : start + step], values[start : start + step])

    def _step(self, layer: int) -> int:
        """Tokens staged at once. Stored state does not depend on it, but for one thing: what a span
        retires is decided at each append, so there the tokens go in together."""
        if self.spec.layer(layer).span:
            return 1 << 32
        width = 2 * self.spec.kv_heads * self.spec.head_dim * _FLOAT
        return max(1, STAGING // width)

    def _append(self, layer: int, keys: FloatArray, values: FloatArray) -> None:
        size = keys.nbytes
        with self.instance.rooms(keys=size, values=size) as (k_at, v_at):
            self.instance.put(k_at, keys)
            self.instance.put(v_at, values)
            self.instance.check("kv_cache_append", self.pointer, layer, k_at, v_at, len(keys))

    def _reserve(self, layer: int, tokens: int) -> None:
        """Make sure of the memory for all parts of a long append before the first one."""
        if not self.instance.has("kv_wasm_reserve"):
            return
        more = _room_for(self.spec.layer(layer), self._length(layer), tokens) + STAGING
        if more >= 1 << 31 or not self.instance.call("kv_wasm_reserve", more):
            left = self.instance.call("kv_wasm_left")
            raise self.instance.refusal(f"append: {tokens} tokens at layer {layer}", more, left)

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        self._open()
        layer = check_layer(self.spec, layer)
        queries = check_queries(self.spec, layer, q, self._length(layer))
        out: FloatArray = np.empty_like(queries)
        size = queries.nbytes
        with self.instance.rooms(q=size, out=size) as (q_at, out_at):
            self.instance.put(q_at, queries)
            self.instance.check("kv_cache_attend", self.pointer, layer, q_at, len(queries), out_at)
            self.instance.memory.read_array(out_at, out)
        return out.reshape(q.shape)

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        self._open()
        layer = check_layer(self.spec, layer)
        length = self._length(layer)
        query = check_score_query(self.spec, layer, q, length)
        floats = self.spec.query_heads * length
        with self.instance.rooms(q=query.nbytes, out=floats * _FLOAT) as (q_at, out_at):
            self.instance.put(q_at, query)
            self.instance.check("kv_cache_scores", self.pointer, layer, q_at, out_at, floats)
            out: FloatArray = np.empty((self.spec.query_heads, length), np.float32)
            self.instance.memory.read_array(out_at, out)
        return out

    @property
    def lengths(self) -> tuple[int, ...]:
        self._open()
        return tuple(self._length(layer) for layer in range(self.spec.layers))

    def _stats(self) -> dict[str, int]:
        size = layout("kv_stats").size
        with self.instance.room(size) as room:
            self.instance.call("kv_cache_get_stats", self._open(), room)
            return layout("kv_stats").unpack(self.instance.read(room, size))

    @property
    def nbytes(self) -> dict[str, int]:
        """By part; what of linear memory is in use for nothing else is reserved."""
        stats = self._stats()
        parts = {part: stats[part] for part in BYTE_PARTS}
        use = self.instance.use
        parts["staging"] += self.instance.staging
        parts["reserved"] += max(0, use.pages * PAGE - (use.used or sum(parts.values())))
        return parts

    @property
    def allocated(self) -> int:
        """Bytes asked of the module's allocator and not yet released, shared pages included."""
        return self._stats()["allocated"]

    @property
    def counters(self) -> Counters:
        stats = self._stats()
        names = self.instance.variants
        return Counters(
            pages_encoded=stats["pages_encoded"],
            pages_scanned=stats["pages_scanned"],
            variants_ran=tuple(name for i, name in enumerate(names) if stats["ran"] >> i & 1),
            peak_bytes=stats["peak_allocated"],
        )

    def pages(self, layer: int) -> list[bytes]:
        cache = self._open()
        layer = check_layer(self.spec, layer)
        page_at = self.instance.results_at
        out, total = [], 0
        for index in range(self.instance.call("kv_cache_page_count", cache, layer)):
            self.instance.check("kv_cache_page", cache, layer, index, page_at, page_at + 8)
            pointer, size = struct.unpack("<I4xQ", self.instance.read(page_at, 16))
            total += size
            if total > self.instance.memory.size:
                raise ModuleFault(
                    f"layer {layer}: pages 0 .. {index} are {total} bytes, more than linear memory "
                    f"has",
                    kind="bounds",
                )
            out.append(self.instance.read(pointer, size))
        return out

    def truncate(self, n: int) -> None:
        cache = self._open()
        self.instance.check("kv_cache_truncate", cache, check_tokens(n, self.length))

    def fork(self) -> WasmCache:
        at = self.instance.results_at
        self.instance.check("kv_cache_fork", self._open(), at)
        return WasmCache(self.spec, self.instance, self.instance.pointer(at))

    def reset(self) -> None:
        self.instance.check("kv_cache_reset", self._open())

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._destroy()

    def dump_bytes(self) -> bytes:
        cache = self._open()
        at = self.instance.results_at
        self.instance.check("kv_cache_dump_bytes", cache, at)
        (size,) = struct.unpack("<Q", self.instance.read(at, 8))
        with self.instance.room(size) as room:
            self.instance.check("kv_cache_dump", cache, room, size)
            return self.instance.read(room, size)


def _room_for(spec: LayerSpec, length: int, tokens: int) -> int:
    """Bytes that an append may take of the allocator: pages, their index, wider fp16 stores."""

    def sealed(count: int) -> int:
        return max(0, (count - spec.sinks - spec.window) // spec.page_tokens)

    last = sealed(length + tokens)
    pages = (last - sealed(length)) * (PageLayout(spec).size + 2 * _GRAIN)
    index = 4 * _POINTER * (last + 8)  # it doubles, and the old one goes last
    vectors = spec.sinks + spec.window + spec.page_tokens + _GRAIN
    stores = 2 * vectors * 2 * spec.kv_heads * spec.head_dim * _HALF
    return pages + index + stores


def _destroy(instance: Instance, pointer: int) -> None:
    """Release a cache; nothing is left to do in an instance that ended."""
    try:
        instance.call("kv_cache_destroy", pointer)
    except ModuleFault:
        return
