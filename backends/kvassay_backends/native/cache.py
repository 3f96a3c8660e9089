"""A cache that lives in a shared library."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from kvassay.backend.checks import (
    check_append,
    check_count,
    check_donor,
    check_layer,
    check_queries,
    check_score_query,
    check_tokens,
)
from kvassay.errors import InputError, UnsupportedError
from kvassay.protocol import BYTE_PARTS, Cache, Counters, FloatArray, require_open
from kvassay.spec import Spec

from . import memory
from .abi import Library

#: What is known of the mark around the last call: none, one, or it was interrupted in between.
_NONE: Final = 0
_MADE: Final = 1
_UNSURE: Final = 2


class LibraryCache(Cache):
    """A thin layer over a `kv_cache *`, which is destroyed by `close` or with this object."""

    def __init__(self, spec: Spec, library: Library, pointer: Any) -> None:
        self.spec = spec
        self._library = library
        self._lib = library.lib
        self._ffi = library.ffi
        self._call = library.call
        self._new = partial(memory.new, library.ffi)
        self._owned = self._ffi.gc(pointer, self._lib.kv_cache_destroy)
        self._closed = False
        self._sharing = library.sharing
        self._marks = 0
        self._guard = _NONE

    def _open(self) -> Any:
        require_open(self._closed)
        if self._guard == _MADE:
            self._guard = _UNSURE
            self._sharing.kv_cache_commit(self._owned, self._ffi.NULL)
            self._guard = _NONE
        elif self._guard == _UNSURE:
            self._settle(self._sharing.kv_cache_commit)
        return self._owned

    def _make_guard(self, layer: int, tokens: int) -> None:
        """A mark that outlasts the call which it guards: a signal handler may raise at its very
        end, when the library has done its work. The next call forgets it."""
        if self._sharing is None:
            return
        self._guard = _UNSURE
        mark = self._sharing.kv_cache_mark
        if mark(self._owned, layer, tokens, self._ffi.NULL) != self._lib.KV_OK:
            self._call(mark, self._owned, layer, tokens)
        self._guard = _MADE

    def _settle(self, way: Any, *arguments: int) -> None:
        """Forget what is marked beyond the marks that were asked for."""
        self._marks = min(self._marks, self._sharing.kv_cache_marks(self._owned))
        while self._sharing.kv_cache_marks(self._owned) > self._marks:
            self._call(way, self._owned, *arguments)
        self._guard = _NONE

    def _take_back(self) -> None:
        """After a failure, whatever it was, the cache is as it was."""
        if self._guard != _NONE and not self._closed:
            self._settle(self._sharing.kv_cache_rollback, 0)

    def _floats(self, array: FloatArray, what: str) -> Any:
        return self._ffi.from_buffer("float *", memory.given(array, what))

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        cache = self._open()
        layer = check_layer(self.spec, layer)
        keys, values = check_append(self.spec, layer, k, v)
        if not len(keys):
            return
        try:
            self._make_guard(layer, len(keys))
            self._call(
                self._lib.kv_cache_append,
                cache,
                layer,
                self._floats(keys, "keys"),
                self._floats(values, "values"),
                len(keys),
            )
        except BaseException:
            self._take_back()
            raise

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        cache = self._open()
        layer = check_layer(self.spec, layer)
        queries = check_queries(self.spec, layer, q, self._lib.kv_cache_length(cache, layer))
        out: FloatArray = memory.empty(queries.shape, np.float32, "out")
        self._call(
            self._lib.kv_cache_attend,
            cache,
            layer,
            self._floats(queries, "q"),
            len(queries),
            self._ffi.from_buffer("float *", out, require_writable=True),
        )
        return out.reshape(q.shape)

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        cache = self._open()
        layer = check_layer(self.spec, layer)
        length = self._lib.kv_cache_length(cache, layer)
        query = check_score_query(self.spec, layer, q, length)
        out: FloatArray = memory.empty((self.spec.query_heads, length), np.float32, "out")
        self._call(
            self._lib.kv_cache_scores,
            cache,
            layer,
            self._floats(query, "q"),
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
        stats = self._new("kv_stats *")
        self._library.watch(self._lib.kv_cache_get_stats, self._open(), stats)
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
        page, size = self._new("const void **"), self._new("uint64_t *")
        out = []
        for index in range(self._lib.kv_cache_page_count(cache, layer)):
            self._call(self._lib.kv_cache_page, cache, layer, index, page, size)
            out.append(bytes(self._ffi.buffer(page[0], size[0])))
        return out

    def truncate(self, n: int) -> None:
        cache = self._open()
        self._call(self._lib.kv_cache_truncate, cache, check_tokens(n, self.length))
        self._marks = 0

    def mark(self, tokens: int) -> None:
        cache, sharing = self._open(), self._need_sharing()
        tokens = check_count("mark: tokens", tokens)
        self._guard = _UNSURE  # until it is counted
        self._call(sharing.kv_cache_mark, cache, sharing.KV_ALL_LAYERS, tokens)
        self._marks += 1

    def rollback(self, keep: int = 0) -> None:
        cache, sharing = self._open(), self._need_sharing()
        keep = check_count("rollback: keep", keep)
        self._guard = _UNSURE
        self._call(sharing.kv_cache_rollback, cache, keep)
        self._marks -= 1

    def commit(self) -> None:
        cache, sharing = self._open(), self._need_sharing()
        self._guard = _UNSURE
        self._call(sharing.kv_cache_commit, cache)
        self._marks -= 1

    def adopt(self, layer: int, donor: Cache, pages: int, k: FloatArray, v: FloatArray) -> None:
        cache, sharing = self._open(), self._need_sharing()
        layer = check_layer(self.spec, layer)
        check_donor(self.spec, donor)
        pages = check_count("adopt: pages", pages)
        keys, values = check_append(self.spec, layer, k, v)
        if not isinstance(donor, LibraryCache) or donor._library is not self._library:
            raise InputError("adopt: the donor must be another cache of the same pool, or a fork")
        try:
            self._make_guard(layer, 0)
            self._call(
                sharing.kv_cache_adopt,
                *(cache, layer, donor._open(), pages),
                *(self._floats(keys, "keys"), self._floats(values, "values"), len(keys)),
            )
        except BaseException:
            self._take_back()
            raise

    def _need_sharing(self) -> Any:
        if self._sharing is None:
            raise UnsupportedError(f"{self._library.path}: has no functions of kvassay_share.h")
        return self._sharing

    def fork(self) -> LibraryCache:
        out = self._new("kv_cache **")
        self._call(self._lib.kv_cache_fork, self._open(), out)
        return LibraryCache(self.spec, self._library, out[0])

    def reset(self) -> None:
        self._call(self._lib.kv_cache_reset, self._open())
        self._marks = 0

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._ffi.release(self._owned)

    def dump_bytes(self) -> bytes:
        cache = self._open()
        size = self._new("uint64_t *")
        self._call(self._lib.kv_cache_dump_bytes, cache, size)
        out = memory.zeroed(size[0], "the dump")
        self._call(self._lib.kv_cache_dump, cache, self._ffi.from_buffer(out), size[0])
        return bytes(out)
