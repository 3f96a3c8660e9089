"""A cache that lives in a shared library."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvassay.checks import (
    check_append,
    check_layer,
    check_queries,
    check_score_query,
    check_tokens,
)
from kvassay.protocol import BYTE_PARTS, Cache, Counters, FloatArray, require_open
from kvassay.spec import Spec

from .abi import Library
from .failures import check


class LibraryCache(Cache):
    """A thin layer over a `kv_cache *`, which is destroyed by `close` or with this object."""

    def __init__(self, spec: Spec, library: Library, pointer: Any) -> None:
        self.spec = spec
        self._library = library
        self._lib = library.lib
        self._ffi = library.ffi
        self._owned = self._ffi.gc(pointer, self._lib.kv_cache_destroy)
        self._closed = False

    def _open(self) -> Any:
        require_open(self._closed)
        return self._owned

    def _call(self, function: Any, *arguments: Any) -> None:
        error = self._library.new_error()
        check(self._library, function(*arguments, error), error)

    def _floats(self, array: FloatArray) -> Any:
        return self._ffi.from_buffer("float *", array)

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        cache = self._open()
        layer = check_layer(self.spec, layer)
        keys, values = check_append(self.spec, layer, k, v)
        if len(keys):
            self._call(
                self._lib.kv_cache_append,
                cache,
                layer,
                self._floats(keys),
                self._floats(values),
                len(keys),
            )

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        cache = self._open()
        layer = check_layer(self.spec, layer)
        queries = check_queries(self.spec, layer, q, self._lib.kv_cache_length(cache, layer))
        out: FloatArray = np.empty_like(queries)
        self._call(
            self._lib.kv_cache_attend,
            cache,
            layer,
            self._floats(queries),
            len(queries),
            self._ffi.from_buffer("float *", out, require_writable=True),
        )
        return out.reshape(q.shape)

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        cache = self._open()
        layer = check_layer(self.spec, layer)
        length = self._lib.kv_cache_length(cache, layer)
        query = check_score_query(self.spec, layer, q, length)
        out: FloatArray = np.empty((self.spec.query_heads, length), np.float32)
        self._call(
            self._lib.kv_cache_scores,
            cache,
            layer,
            self._floats(query),
            self._ffi.from_buffer("float *", out, require_writable=True),
            out.size,
        )
        return out

    @property
    def lengths(self) -> tuple[int, ...]:
        cache = self._open()
        length = self._lib.kv_cache_length
        return tuple(length(cache, layer) for layer in range(self.spec.layers))

    def _stats(self) -> Any:
        stats = self._ffi.new("kv_stats *")
        self._lib.kv_cache_get_stats(self._open(), stats)
        return stats

    @property
    def nbytes(self) -> dict[str, int]:
        stats = self._stats()
        return {part: getattr(stats, part) for part in BYTE_PARTS}

    @property
    def allocated(self) -> int:
        """Bytes asked of the allocator and not yet released, shared pages included."""
        return int(self._stats().allocated)

    @property
    def counters(self) -> Counters:
        stats = self._stats()
        ran = (name for i, name in enumerate(self._library.variants) if stats.ran >> i & 1)
        return Counters(
            pages_encoded=stats.pages_encoded,
            pages_scanned=stats.pages_scanned,
            variants_ran=tuple(ran),
            peak_bytes=stats.peak_allocated,
        )

    def pages(self, layer: int) -> list[bytes]:
        cache = self._open()
        layer = check_layer(self.spec, layer)
        page, size = self._ffi.new("const void **"), self._ffi.new("uint64_t *")
        out = []
        for index in range(self._lib.kv_cache_page_count(cache, layer)):
            self._call(self._lib.kv_cache_page, cache, layer, index, page, size)
            out.append(bytes(self._ffi.buffer(page[0], size[0])))
        return out

    def truncate(self, n: int) -> None:
        cache = self._open()
        self._call(self._lib.kv_cache_truncate, cache, check_tokens(n, self.length))

    def fork(self) -> LibraryCache:
        out = self._ffi.new("kv_cache **")
        self._call(self._lib.kv_cache_fork, self._open(), out)
        return LibraryCache(self.spec, self._library, out[0])

    def reset(self) -> None:
        self._call(self._lib.kv_cache_reset, self._open())

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._ffi.release(self._owned)

    def dump_bytes(self) -> bytes:
        cache = self._open()
        size = self._ffi.new("uint64_t *")
        self._call(self._lib.kv_cache_dump_bytes, cache, size)
        out = bytearray(size[0])
        self._call(self._lib.kv_cache_dump, cache, self._ffi.from_buffer(out), size[0])
        return bytes(out)
