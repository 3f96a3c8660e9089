"""A module that offers pure kernels only: it computes, the life cycle is run here."""

from __future__ import annotations

from kvassay.spec import Spec

from ..lifecycle import LifecycleBackend
from .backend import WasmBackend
from .instance import Instance, Limits
from .kernels import ModuleKernelCache, ModuleKernels
from .module import Module


class WasmKernelBackend(LifecycleBackend, WasmBackend):
    """The life cycle of `reference` around the kernels of a module."""

    cache = ModuleKernelCache

    def kernels(self, spec: Spec) -> ModuleKernels:
        return ModuleKernels(spec, self.instance(), self.variant)


def open_backend(name: str, module: Module, variant: str, limits: Limits) -> WasmBackend:
    """A variant of a module, driven by what the module offers: a whole cache, or kernels."""
    stateful = Instance(module, limits).stateful
    kind = WasmBackend if stateful else WasmKernelBackend
    return kind(name, module, variant, limits)
