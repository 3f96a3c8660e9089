"""Caches of a shared library that share memory within a limit."""

from __future__ import annotations

from typing import Any

from kvassay.protocol import Pool, require_open
from kvassay.spec import Spec

from . import memory
from .abi import Library, sharing_interface
from .cache import LibraryCache
from .failures import naming_the_field


class LibraryPool(Pool):
    """A `kv_cache_pool *`. Its memory goes with it and the last of its caches."""

    def __init__(self, spec: Spec, library: Library, config: Any, limit: int | None) -> None:
        self.spec = spec
        self._library = library
        self._lib = library.sharing
        self._ffi = sharing_interface()
        out = memory.new(self._ffi, "kv_cache_pool **")
        library.call(self._lib.kv_cache_pool_create, config, limit or 0, out)
        self._owned = self._ffi.gc(out[0], self._lib.kv_cache_pool_destroy)
        self._closed = False

    def prepare(self) -> LibraryCache:
        require_open(self._closed)
        out = memory.new(self._library.ffi, "kv_cache **")
        self._library.call(self._lib.kv_cache_pool_take, self._owned, out)
        return LibraryCache(self.spec, self._library, out[0])

    def restore_bytes(self, data: bytes) -> LibraryCache:
        require_open(self._closed)
        ffi = self._library.ffi
        out, source = memory.new(ffi, "kv_cache **"), ffi.from_buffer(memory.given(data, "a dump"))
        with naming_the_field(self.spec, data):
            arguments = (self._owned, source, len(data), out)
            self._library.call(self._lib.kv_cache_pool_restore, *arguments)
        return LibraryCache(self.spec, self._library, out[0])

    def _stats(self) -> Any:
        require_open(self._closed)
        stats = memory.new(self._ffi, "kv_pool_stats *")
        self._library.watch(self._lib.kv_cache_pool_get_stats, self._owned, stats)
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
