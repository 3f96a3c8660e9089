"""Pools of reference caches."""

from __future__ import annotations

from kvassay.protocol import Pool, require_open
from kvassay.spec import Spec

from .cache import ReferenceCache
from .family import CountedFamily
from .kernels import Kernels


class ReferencePool(Pool):
    """A family of reference caches within a limit."""

    def __init__(
        self,
        spec: Spec,
        limit: int | None,
        kernels: Kernels | None = None,
        cache: type[ReferenceCache] = ReferenceCache,
    ) -> None:
        self.spec = spec
        self._family = CountedFamily(spec, limit, kernels)
        self._cache = cache
        self._closed = False

    def prepare(self) -> ReferenceCache:
        require_open(self._closed)
        return self._cache(self.spec, self._family)

    def restore_bytes(self, data: bytes) -> ReferenceCache:
        require_open(self._closed)
        return self._cache.restored(self.spec, data, self._family)

    @property
    def nbytes(self) -> dict[str, int]:
        family = self._family
        return {
            "used": family.used,
            "reserved": family.reserved,
            "headers": family.table_bytes,
        }

    def close(self) -> None:
        self._closed = True
