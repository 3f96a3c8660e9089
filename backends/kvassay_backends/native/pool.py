"""Caches of a shared library that share memory within a limit."""

from __future__ import annotations

from typing import Any

from kvassay.protocol import Pool, require_open
from kvassay.spec import Spec

from .abi import Library, sharing_interface
from .cache import LibraryCache
from .failures import check, failure, refuse_identity


class LibraryPool(Pool):
    """A `kv_cache_pool *`. Its memory goes with it and the last of its caches."""

    def __init__(self, spec: Spec, library: Library, config: Any, limit: int | None) -> None:
        self.spec = spec
        self._library = library
        self._lib = library.sharing
        self._ffi = sharing_interface()
        out, error = self._ffi.new("kv_cache_pool **"), library.new_error()
        check(library, self._lib.kv_cache_pool_create(config, limit or 0, out, error), error)
        self._owned = self._ffi.gc(out[0], self._lib.kv_cache_pool_destroy)
        self._closed = False

    def prepare(self) -> LibraryCache:
        require_open(self._closed)
        out, error = self._library.ffi.new("kv_cache **"), self._library.new_error()
        check(self._library, self._lib.kv_cache_pool_take(self._owned, out, error), error)
        return LibraryCache(self.spec, self._library, out[0])

    def restore_bytes(self, data: bytes) -> LibraryCache:
        require_open(self._closed)
        ffi, lib = self._library.ffi, self._library.lib
        out, error = ffi.new("kv_cache **"), self._library.new_error()
        source = ffi.from_buffer(data)
        code = self._lib.kv_cache_pool_restore(self._owned, source, len(data), out, error)
        if code == lib.KV_E_IDENTITY:
            refuse_identity(self.spec, data)
        if code != lib.KV_OK:
            raise failure(self._library, code, error)
        return LibraryCache(self.spec, self._library, out[0])

    def _stats(self) -> Any:
        require_open(self._closed)
        stats = self._ffi.new("kv_pool_stats *")
        self._lib.kv_cache_pool_get_stats(self._owned, stats)
        return stats

    @property
    def nbytes(self) -> dict[str, int]:
        stats = self._stats()
        return {part: getattr(stats, part) for part in ("used", "reserved", "headers")}

    @property
    def peak_bytes(self) -> int:
        """The most it ever held."""
        return int(self._stats().peak)

    @property
    def recycled(self) -> float:
        """Share of the blocks it handed out that had been given back before."""
        stats = self._stats()
        return float(stats.recycled / max(1, stats.served))

    def trim(self) -> None:
        """Give memory back that no cache uses."""
        require_open(self._closed)
        self._lib.kv_cache_pool_trim(self._owned)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._ffi.release(self._owned)
