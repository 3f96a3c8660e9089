"""The life cycle of a cache around somebody's kernels.

A backend that brings kernels alone (`Kernels`: seal a page, attend, score) inherits the rest from
`LifecycleBackend`: append, truncate, drafts, forks, pools, reset, dumps, counting of bytes.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from kvassay.backend.checks import check_limit, check_spec, check_threads
from kvassay.errors import UnsupportedError
from kvassay.protocol import Backend, Cache, Pool
from kvassay.spec import Spec

from .reference.cache import ReferenceCache
from .reference.encode import Means
from .reference.kernels import Kernels, Page
from .reference.layer import LayerState
from .reference.lineage import Lineage
from .reference.pool import ReferencePool


class LifecycleBackend(Backend):
    """States as numpy arrays and pages as bytes, around kernels. One thread, whatever is asked."""

    shares = True
    #: What its caches are.
    cache: ClassVar[type[ReferenceCache]] = ReferenceCache

    @abstractmethod
    def kernels(self, spec: Spec) -> Kernels:
        """What computes for caches of a spec that `supports` says yes to."""

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        return self.cache(spec, Lineage(spec, self._kernels(spec, threads)))

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        return self.cache.restored(spec, data, Lineage(spec, self._kernels(spec, threads)))

    def pool(self, spec: Spec, limit: int | None = None, threads: int = 1) -> Pool:
        return ReferencePool(spec, check_limit(limit), self._kernels(spec, threads), self.cache)

    def _kernels(self, spec: Spec, threads: int) -> Kernels:
        check_threads(threads)
        check_spec(spec)
        support = self.supports(spec)
        if not support:
            raise UnsupportedError(f"{self.name} {self.variant}: {support.reason}")
        return self.kernels(spec)


__all__ = ["Kernels", "LayerState", "LifecycleBackend", "Means", "Page", "ReferenceCache"]
