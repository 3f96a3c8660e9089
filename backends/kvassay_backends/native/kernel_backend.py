"""A library that offers pure kernels only: it computes, the life cycle is run here."""

from __future__ import annotations

from kvassay.checks import check_limit
from kvassay.errors import UnsupportedError
from kvassay.protocol import Cache, Pool
from kvassay.spec import Spec

from ..reference.cache import ReferenceCache
from ..reference.family import Family
from ..reference.pool import ReferencePool
from .abi import Library
from .backend import LibraryBackend, check_threads, layer_fields
from .kernels import LibraryKernels


class KernelBackend(LibraryBackend):
    """The life cycle of `reference`, states as numpy arrays and pages as bytes, around kernels.

    One thread calls the kernels, whatever is asked.
    """

    def __init__(self, name: str, library: Library, variant: str) -> None:
        super().__init__(name, library, variant)
        self.shares = True

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        return ReferenceCache(spec, Family(spec, self._kernels(spec, threads)))

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        return ReferenceCache.restored(spec, data, Family(spec, self._kernels(spec, threads)))

    def pool(self, spec: Spec, limit: int | None = None, threads: int = 1) -> Pool:
        return ReferencePool(spec, check_limit(limit), self._kernels(spec, threads))

    def _kernels(self, spec: Spec, threads: int) -> LibraryKernels:
        check_threads(threads)
        support = self.supports(spec)
        if not support:
            raise UnsupportedError(f"{self.name} {self.variant}: {support.reason}")
        return LibraryKernels(spec, self._library, self.variant, layer_fields)


def open_backend(name: str, library: Library, variant: str) -> LibraryBackend:
    """A variant of a library, driven by what the library offers: a whole cache, or kernels."""
    kind = LibraryBackend if library.stateful else KernelBackend
    return kind(name, library, variant)
