"""One variant of a library in a server as a Backend."""

from __future__ import annotations

import struct
from typing import Final

from kvassay.backend.checks import check_spec, check_threads
from kvassay.errors import UnsupportedError
from kvassay.protocol import Backend, Cache, Support
from kvassay.spec import Identity, LayerSpec, Spec

from ..native.backend import distinct_layers, layer_fields
from ..native.failures import naming_the_field
from .cache import EmulatedCache
from .link import Command, Link

#: Hashes of the identity, name of the variant, size of the identity text.
_SETTINGS: Final = struct.Struct("<3Q16sQ")


class EmulatedBackend(Backend):
    """Executes specs in a server."""

    def __init__(self, name: str, link: Link, variant: str) -> None:
        self.name = name
        self.variant = variant
        self.exact = bool(link.info["flags"] & link.lib.KV_FLAG_EXACT)
        self.build_id = link.build_id
        self._link = link

    def supports(self, spec: Spec) -> Support:
        check_spec(spec)
        for layer, layer_spec in distinct_layers(spec):
            try:
                self._link.call(Command.SUPPORTS, self._layer(layer_spec))
            except UnsupportedError as error:
                return Support(False, f"layer {layer}: {error}")
        return Support(True)

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        return self._make(Command.CREATE, spec, threads)

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        with naming_the_field(spec, data):
            return self._make(Command.RESTORE, spec, threads, data)

    def _layer(self, spec: LayerSpec) -> bytes:
        ffi = self._link.ffi
        return bytes(ffi.buffer(ffi.new("kv_layer_spec *", layer_fields(spec))))

    def _make(self, command: Command, spec: Spec, threads: int, dump: bytes = b"") -> Cache:
        check_threads(threads)
        support = self.supports(spec)
        if not support:
            raise UnsupportedError(f"{self.name} {self.variant}: {support.reason}")
        identity, text = spec.identity or Identity(), spec.identity_text.encode()
        hashes = (identity.model_hash, identity.tokenizer_hash, identity.runtime_hash)
        layers = b"".join(self._layer(layer) for layer in spec.layer_specs)
        data = _SETTINGS.pack(*hashes, self.variant.encode(), len(text)) + layers + text
        if command is Command.RESTORE:
            data += bytes(-len(data) % 64)
        reply = self._link.call(command, data, dump, layer=spec.layers, count=int(threads))
        return EmulatedCache(spec, self._link, int.from_bytes(reply, "little"))
