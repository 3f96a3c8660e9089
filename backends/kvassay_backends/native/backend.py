"""One variant of a shared library as a Backend."""

from __future__ import annotations

from typing import Any

from kvassay.backend.checks import check_limit, check_spec, check_threads
from kvassay.errors import InputError, UnsupportedError
from kvassay.page.layout import KEY_CENTRE_NUMBER, SCALE_NUMBER, VALUE_CENTRE_NUMBER
from kvassay.protocol import Backend, Cache, Pool, Support
from kvassay.spec import Identity, LayerSpec, Spec

from . import memory
from .abi import Library
from .cache import LibraryCache
from .failures import naming_the_field
from .pool import LibraryPool


class LibraryBackend(Backend):
    """Executes specs in a library that exports kvassay.h."""

    def __init__(self, name: str, library: Library, variant: str) -> None:
        self.name = name
        self.variant = variant
        self.exact = library.exact
        self.bound = library.bound
        self.build_id = library.build_id
        self.shares = library.sharing is not None
        self._library = library

    @property
    def library(self) -> Library:
        """The library it runs in."""
        return self._library

    def supports(self, spec: Spec) -> Support:
        check_spec(spec)
        error = self._library.new_error()
        for layer, layer_spec in distinct_layers(spec):
            code = self._library.lib.kv_supports(self._layer(layer_spec), error)
            if code != self._library.lib.KV_OK:
                return Support(False, f"layer {layer}: {self._library.text(error.message)}")
        return Support(True)

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        config, _owners = self._config(spec, threads)
        library = self._library
        out = memory.new(library.ffi, "kv_cache **")
        try:
            library.call(library.lib.kv_cache_create, config, out)
        except InputError:
            if library.own_memory or config.allocator == library.ffi.NULL:
                raise
            library.own_memory = True
            return self.prepare(spec, threads)
        return LibraryCache(spec, self._library, out[0])

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        config, _owners = self._config(spec, threads)
        ffi, restore = self._library.ffi, self._library.lib.kv_cache_restore
        out, source = memory.new(ffi, "kv_cache **"), ffi.from_buffer(memory.given(data, "a dump"))
        with naming_the_field(spec, data):
            self._library.call(restore, config, source, len(data), out)
        return LibraryCache(spec, self._library, out[0])

    def pool(self, spec: Spec, limit: int | None = None, threads: int = 1) -> Pool:
        config, _owners = self._config(spec, threads)
        if not self.shares:
            raise UnsupportedError(f"{self.name} {self.variant}: offers no pools")
        return LibraryPool(spec, self._library, config, check_limit(limit))

    def _layer(self, spec: LayerSpec) -> Any:
        return self._library.ffi.new("kv_layer_spec *", layer_fields(spec))

    def _config(self, spec: Spec, threads: Any) -> tuple[Any, list[Any]]:
        """A kv_cache_config and what must stay alive while it is used."""
        ffi = self._library.ffi
        check_threads(threads)
        support = self.supports(spec)
        if not support:
            raise UnsupportedError(f"{self.name} {self.variant}: {support.reason}")
        identity = spec.identity or Identity()
        fields = [layer_fields(layer) for layer in spec.layer_specs]
        specs = memory.new(ffi, "kv_layer_spec[]", fields, constant=True)
        text = memory.given(spec.identity_text.encode(), "the identity")
        variant = memory.new(ffi, "char[]", self.variant.encode(), constant=True)
        config = memory.new(
            ffi,
            "kv_cache_config *",
            {
                "layers": spec.layers,
                "threads": int(threads),
                "specs": specs,
                "variant": variant,
                "identity": ffi.from_buffer("uint8_t[]", text),
                "identity_bytes": len(text),
                "model": identity.model_hash,
                "tokenizer": identity.tokenizer_hash,
                "runtime": identity.runtime_hash,
                "allocator": ffi.NULL if self._library.own_memory else memory.allocator(ffi),
            },
            constant=True,
        )
        return config, [specs, text, variant]


def layer_fields(spec: LayerSpec) -> dict[str, int | float]:
    """The fields of a kv_layer_spec."""
    return {
        "kv_heads": spec.kv_heads,
        "query_heads": spec.query_heads,
        "head_dim": spec.head_dim,
        "page_tokens": spec.page_tokens,
        "key_mode": spec.keys.mode,
        "value_mode": spec.values.mode,
        "key_centre": KEY_CENTRE_NUMBER[spec.key_centre],
        "value_centre": VALUE_CENTRE_NUMBER[spec.value_centre],
        "scale_kind": SCALE_NUMBER[spec.scale],
        "rounds": spec.rounds,
        "window": spec.window,
        "sinks": spec.sinks,
        "span": spec.span,
        "softmax_scale": spec.softmax_scale,
        "seed": spec.seed,
    }


def distinct_layers(spec: Spec) -> list[tuple[int, LayerSpec]]:
    """The first layer of each different layer spec."""
    first: dict[LayerSpec, int] = {}
    for layer, layer_spec in enumerate(spec.layer_specs):
        first.setdefault(layer_spec, layer)
    return [(layer, layer_spec) for layer_spec, layer in first.items()]
