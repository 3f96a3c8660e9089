"""A module as a Backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from kvassay.backend.checks import check_spec, check_threads
from kvassay.errors import UnsupportedError
from kvassay.protocol import Backend, Cache, Support
from kvassay.spec import Identity, Spec

from ..native.backend import distinct_layers, layer_fields
from ..native.failures import naming_the_field
from .cache import WasmCache
from .instance import Instance, Limits, MemoryUse
from .layout import layout
from .module import Module, engine_name


class WasmBackend(Backend):
    """Executes specs in a module that exports kvassay.h.

    Each cache gets an instance, hence a linear memory, of its own, and forks share it: memory goes
    back to the system with the last of them. `in_one_memory` makes a backend whose caches follow
    each other in a single instance, as they do in a browser. A module has no threads: `threads` is
    accepted, and one does the work, with the same bits.
    """

    def __init__(
        self,
        name: str,
        module: Module,
        variant: str,
        limits: Limits | None = None,
        shipped: bool = False,
    ) -> None:
        self.name = name
        self.variant = variant
        self._module = module
        self._limits = limits or Limits()
        self._shipped = shipped
        self._shared: Instance | None = None
        self.exact = self.desk.exact
        self.bound = self.desk.bound
        self.build_id = self.desk.build_id

    @cached_property
    def desk(self) -> Instance:
        """An instance for questions that need no cache."""
        return Instance(self._module, self._limits)

    @property
    def evidence(self) -> Mapping[str, Any]:
        """Which module this is and what runs it, for the records."""
        return {
            "module": self._module.path.name,
            "sha256": self._module.sha256,
            "engine": engine_name(),
            "linear_memory": True,
            "shipped": self._shipped,
        }

    def in_one_memory(self, max_bytes: int | None = None, metered: bool = False) -> WasmBackend:
        """The same with one linear memory for all its caches, of at most `max_bytes`.

        `metered` counts instructions, which takes some speed.
        """
        limits = self._limits if max_bytes is None else Limits(max_bytes, self._limits.fuel)
        module = self._module.metering() if metered else self._module
        other = type(self)(self.name, module, self.variant, limits)
        other._shared = other.desk
        return other

    @property
    def spent(self) -> int:
        """Instructions that the one memory's caches have executed, where they are counted."""
        return self.desk.spent

    @property
    def memory_use(self) -> MemoryUse:
        """The one linear memory of a backend that `in_one_memory` made."""
        return self.desk.use

    def supports(self, spec: Spec) -> Support:
        check_spec(spec)
        desk = self.desk
        for layer, layer_spec in distinct_layers(spec):
            blob = layout("kv_layer_spec").pack(layer_fields(layer_spec))
            with desk.room(len(blob)) as room:
                desk.memory.write(room, blob)
                try:
                    desk.check("kv_supports", room)
                except UnsupportedError as error:
                    return Support(False, f"layer {layer}: {error}")
        return Support(True)

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        self._refuse(spec, threads)
        instance = self.instance()
        with _arguments(instance, spec, self.variant) as (config, _):
            instance.check("kv_cache_create", config, instance.results_at)
        return WasmCache(spec, instance, instance.pointer(instance.results_at))

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        self._refuse(spec, threads)
        instance = self.instance()
        with (
            _arguments(instance, spec, self.variant, data) as (config, dump),
            naming_the_field(spec, data),
        ):
            instance.check("kv_cache_restore", config, dump, len(data), instance.results_at)
        return WasmCache(spec, instance, instance.pointer(instance.results_at))

    def instance(self) -> Instance:
        """An instance for a new cache: one of its own, or the only one."""
        return self._shared or Instance(self._module, self._limits)

    def _refuse(self, spec: Spec, threads: Any) -> None:
        check_threads(threads)
        support = self.supports(spec)
        if not support:
            raise UnsupportedError(f"{self.name} {self.variant}: {support.reason}")


@contextmanager
def _arguments(
    instance: Instance, spec: Spec, variant: str, dump: bytes = b""
) -> Iterator[tuple[int, int]]:
    """Addresses of a kv_cache_config and of a dump, in linear memory while the call lasts."""
    identity = spec.identity or Identity()
    text = spec.identity_text.encode()
    packed = (layout("kv_layer_spec").pack(layer_fields(layer)) for layer in spec.layer_specs)
    parts = (b"".join(packed), variant.encode() + b"\0", text, dump)
    offsets, end = [], layout("kv_cache_config").size
    for part in parts:
        end = -(-end // 64) * 64
        offsets.append(end)
        end += len(part)
    with instance.room(end) as room:
        specs, name, identity_at, dump_at = (room + offset for offset in offsets)
        config = {
            "layers": spec.layers,
            "threads": 1,
            "specs": specs,
            "variant": name,
            "identity": identity_at,
            "identity_bytes": len(text),
            "model": identity.model_hash,
            "tokenizer": identity.tokenizer_hash,
            "runtime": identity.runtime_hash,
        }
        instance.memory.write(room, layout("kv_cache_config").pack(config))
        for offset, part in zip(offsets, parts, strict=True):
            instance.memory.write(room + offset, part)
        yield room, dump_at
