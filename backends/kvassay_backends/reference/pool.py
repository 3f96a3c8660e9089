"""Pools of reference caches."""

from __future__ import annotations

from kvassay.protocol import Pool, require_open
from kvassay.spec import Spec

from .cache import ReferenceCache
from .kernels import Kernels
from .lineage import CountedLineage


class ReferencePool(Pool):
    """A lineage of reference caches within a limit."""

    def __init__(
        self,
        spec: Spec,
        limit: int | None,
        kernels: Kernels | None = None,
        cache: type[ReferenceCache] = ReferenceCache,
    ) -> None:
        self.spec = spec
        self._lineage = CountedLineage(spec, limit, kernels)
        self._cache = cache
        self._closed = False

    def prepare(self) -> ReferenceCache:
        require_open(self._closed)
        return self._cache(self.spec, self._lineage)

    def restore_bytes(self, data: bytes) -> ReferenceCache:
        require_open(self._closed)
        return self._cache.restored(self.spec, data, self._lineage)

    @property
    def nbytes(self) -> dict[str, int]:
        lineage = self._lineage
        return {
            "used": lineage.used,
            "reserved": lineage.reserved,
            "headers": lineage.table_bytes,
        }

    def close(self) -> None:
        self._closed = True
