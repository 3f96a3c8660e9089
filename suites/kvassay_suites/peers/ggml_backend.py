"""ggml's CPU flash attention as a backend: formats of llama.cpp, judged like anybody's.

    kvassay foreign --backend kvassay_suites.peers.ggml_backend:provider

Rows are quantized by ggml as they are appended; a step builds llama.cpp's graph over the rows held.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from kvassay.backend.own_formats import OwnFormat, OwnFormatBackend, turned
from kvassay.errors import InputError, StateError, UnsupportedError
from kvassay.protocol import Availability, Backend, BackendProvider, FloatArray, Support
from kvassay.spec import Spec

from .cases import Case
from .ggml import TOLERANCE, TYPES, StoredAttention, available, quantize_rows
from .protocol import NotMeasured

#: What the comparison of speeds allows its q8_0 arithmetic: rounding of the query to q8_0, and sums
#: of fp16 values.
_BOUND: Final = TOLERANCE["q8_0"]
_BLOCK: Final = 32
#: llama.cpp rotates quantized caches by default where head dims are multiples of 64.
_ROTATION: Final = 64
_FORMATS: Final = {
    "q8_0": OwnFormat("q8_0", "q8_0", 8.5, _BOUND),
    "q4_0": OwnFormat("q4_0", "q4_0", 4.5, _BOUND),
    "q4_0-rotated": OwnFormat("q4_0", "q4_0", 4.5, _BOUND, hadamard=_ROTATION),
}


class GgmlBackend(OwnFormatBackend):
    """The CPU backend of ggml that llama-cpp-python built."""

    name = "ggml"
    variant = "cpu"
    bound = _BOUND

    def __init__(self) -> None:
        self.build_id = available()

    @property
    def formats(self) -> Mapping[str, OwnFormat]:
        """Those of llama.cpp's quantized caches, plain and as it stores them by default."""
        return _FORMATS

    def supports_own(self, name: str, shape: Spec) -> Support:
        """Head dims are multiples of 32."""
        if shape.head_dim % _BLOCK:
            return Support(False, f"ggml: head dim {shape.head_dim} is no multiple of {_BLOCK}")
        return Support(True)

    def prepare_own(self, name: str, shape: Spec, threads: int = 1) -> GgmlCache:
        """An empty cache."""
        if not (support := self.supports_own(name, shape)):
            raise UnsupportedError(support.reason)
        return GgmlCache(name, shape, threads)


class GgmlProvider(BackendProvider):
    """The one variant: what ggml chose when it was compiled."""

    name = "ggml"
    foreign = True

    def variants(self) -> Mapping[str, Availability]:
        try:
            available()
        except NotMeasured as error:
            return {GgmlBackend.variant: Availability("missing-package", str(error))}
        return {GgmlBackend.variant: Availability("ready")}

    def load(self, variant: str) -> Backend:
        return GgmlBackend()


class GgmlCache:
    """Rows of K and V of each layer, as ggml stores them."""

    def __init__(self, format_: str, shape: Spec, threads: int) -> None:
        self._type, self._block = _FORMATS[format_].keys, _FORMATS[format_].hadamard
        self._shape, self._threads = shape, threads
        self._rows: list[tuple[bytearray, bytearray]] | None = [
            (bytearray(), bytearray()) for _ in range(shape.layers)
        ]
        self._lengths = [0] * shape.layers

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        """Quantize and keep rows; k and v (tokens, kv_heads, head_dim)."""
        shape = (len(k), self._shape.kv_heads, self._shape.head_dim)
        if k.shape != shape or v.shape != shape:
            raise InputError(f"append: k is {k.shape}, v is {v.shape}, {shape} wanted")
        for held, rows in zip(self._held(layer), (k, v), strict=True):
            stored = turned(rows, self._block).reshape(len(k), -1)
            held += quantize_rows(TYPES[self._type], stored)
        self._lengths[layer] += len(k)

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        """Attention of (query_heads, head_dim) over all rows."""
        spec, tokens = self._shape, self._lengths[layer]
        if not tokens:
            raise StateError(f"layer {layer} is empty")
        heads = (spec.kv_heads, spec.query_heads, spec.head_dim)
        case = Case("cache", "attend", "", *heads, tokens)
        scale = spec.effective_softmax_scale
        with StoredAttention(case, self._type, self._threads, scale) as step:
            out: Any = step.attend(self._held(layer), turned(q, self._block))
        return turned(np.asarray(out, np.float32).reshape(q.shape), self._block)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all rows."""
        return sum(len(part) for rows in self._rows or () for part in rows)

    def close(self) -> None:
        """Forget all rows."""
        self._rows = None

    def _held(self, layer: int) -> tuple[bytearray, bytearray]:
        if self._rows is None:
            raise StateError("the cache is closed; prepare another one")
        return self._rows[layer]


provider: Final = GgmlProvider()
