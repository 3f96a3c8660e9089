"""A library that offers pure kernels only: it computes, the life cycle is run here."""

from __future__ import annotations

from kvassay.spec import Spec

from ..lifecycle import LifecycleBackend
from .abi import Library
from .backend import LibraryBackend, layer_fields
from .kernels import LibraryKernels


class KernelBackend(LifecycleBackend, LibraryBackend):
    """The life cycle of `reference` around the kernels of a library."""

    def __init__(self, name: str, library: Library, variant: str) -> None:
        super().__init__(name, library, variant)
        self.shares = True

    def kernels(self, spec: Spec) -> LibraryKernels:
        return LibraryKernels(spec, self.library, self.variant, layer_fields)


def open_backend(name: str, library: Library, variant: str) -> LibraryBackend:
    """A variant of a library, driven by what the library offers: a whole cache, or kernels."""
    kind = LibraryBackend if library.stateful else KernelBackend
    return kind(name, library, variant)
