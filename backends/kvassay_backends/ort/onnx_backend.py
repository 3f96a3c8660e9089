"""The native kernels behind ONNX Runtime's operators, as a Backend."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from kvassay.backend.checks import check_threads
from kvassay.errors import UnsupportedError
from kvassay.protocol import Backend, Cache, Support
from kvassay.spec import Identity, Spec

from ..native.backend import LibraryBackend, layer_fields
from .blocks import BlockLibrary, Blocks
from .cache import Layer, OrtCache
from .graphs import attributes
from .sessions import NodeSessions, options

#: Layers whose sessions are kept, the most recently used ones.
KEPT_LAYERS: Final = 256


class OrtBackend(Backend):
    """Executes specs through the operators `kvassay.Append`, `Attend` and `Scores`.

    Sessions hold no tokens, so all caches of a spec run in the same ones, as those of a runtime
    run in one decoder.
    """

    def __init__(self, name: str, native: LibraryBackend) -> None:
        self.name = name
        self.variant = native.variant
        self.exact = native.exact
        self.build_id = native.build_id
        self._native = native
        self._blocks = BlockLibrary(native.library)
        self._options = options(native.library.path)
        self._sessions = lru_cache(KEPT_LAYERS)(self._make_sessions)

    def _make_sessions(self, given: tuple[tuple[str, Any], ...]) -> NodeSessions:
        return NodeSessions(self._options, dict(given))

    @property
    def library_path(self) -> Path:
        """The library with the operators."""
        return self._native.library.path

    def supports(self, spec: Spec) -> Support:
        return self._native.supports(spec)

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        return OrtCache(spec, self.layers(spec, threads), self._native.library.variants)

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        layers = self.layers(spec, threads)
        return OrtCache.restored(spec, layers, self._native.library.variants, bytes(data))

    def layers(self, spec: Spec, threads: int) -> list[Layer]:
        """What runs each layer. Raises UnsupportedError where `supports` says no."""
        check_threads(threads)
        support = self.supports(spec)
        if not support:
            raise UnsupportedError(f"{self.name} {self.variant}: {support.reason}")
        who = spec.identity or Identity()
        out = []
        for index, layer in enumerate(spec.layer_specs):
            page_id = {
                "model": who.model_hash,
                "tokenizer": who.tokenizer_hash,
                "runtime": who.runtime_hash,
                "layer": index,
            }
            given = attributes(layer, index, spec.identity, self.variant, int(threads))
            blocks = Blocks(
                self._blocks,
                layer,
                self._blocks.ffi.new("kv_layer_spec *", layer_fields(layer)),
                self._blocks.ffi.new("kv_page_id *", page_id),
            )
            out.append(Layer(layer, blocks, self._sessions(tuple(given.items())), int(threads)))
        return out
