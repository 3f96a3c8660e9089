"""Caches that hand back what they hold, whose arithmetic is the model's: a `transformers.Cache`, a
codec of arrays.

What comes back is what a model attends to, so exact attention over it says what the model would
compute; nothing need be known about how it is stored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np

from ..errors import InputError, StateError, UnsupportedError
from ..protocol import FloatArray
from ..spec import Spec
from .own_formats import OwnFormat, OwnFormatBackend

#: Attention over what comes back is in float64; float32 is what goes out.
_BOUND: Final = 1e-6


class Holder(Protocol):
    """What is judged: it takes keys and values and gives back all that it holds of a layer."""

    def update(self, layer: int, k: FloatArray, v: FloatArray, /) -> tuple[FloatArray, FloatArray]:
        """Take float32 (tokens, kv_heads, head_dim), give all of the layer, oldest first."""

    def drop_last(self, tokens: int, /) -> None:
        """Forget the newest tokens of every layer; UnsupportedError where that is not offered."""

    def reset(self) -> None:
        """Forget everything; UnsupportedError where that is not offered."""

    def settle(self) -> None:
        """Let go of what is held only to answer faster."""


class ReturnedCache:
    """Float64 attention over what a holder gives back: an `OwnCache`."""

    def __init__(self, holder: Holder, shape: Spec) -> None:
        self._holder: Holder | None = holder
        self._shape = shape
        self._last: dict[int, tuple[FloatArray, FloatArray]] = {}

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        """Hand over k and v (tokens, kv_heads, head_dim) float32; InputError for what comes back
        in another shape."""
        keys, values = self._open.update(layer, k, v)
        row = (self._shape.kv_heads, self._shape.head_dim)
        if keys.shape[1:] != row or values.shape[1:] != row or len(keys) != len(values):
            raise InputError(
                f"layer {layer}: keys {keys.shape} and values {values.shape} came back, "
                f"(tokens, {row[0]}, {row[1]}) of both wanted"
            )
        self._last[layer] = keys, values

    def returned(self, layer: int) -> tuple[FloatArray, FloatArray]:
        """Keys and values as they came back last; StateError if none did."""
        if layer not in self._last:
            raise StateError(f"layer {layer}: nothing came back yet; append first")
        return self._last[layer]

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        """Attention of (query_heads, head_dim), or of (n, query_heads, head_dim) causal over the
        newest n tokens, in float64; same shape out."""
        keys, values = self.returned(layer)
        queries = q.reshape(-1, *q.shape[-2:])
        n, _, d = queries.shape
        grouped = queries.reshape(n, keys.shape[1], -1, d).astype(np.float64)
        logits = np.einsum("nhgd,thd->nhgt", grouped, keys.astype(np.float64))
        logits *= self._shape.effective_softmax_scale
        newest = len(keys) - n + np.arange(n)
        logits[
            np.arange(len(keys)) > newest[:, None, None, None] + np.zeros(logits.shape)
        ] = -np.inf
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out = np.einsum("nhgt,thd->nhgd", weights, values.astype(np.float64))
        found: FloatArray = out.reshape(q.shape).astype(np.float32)
        return found

    def truncate(self, tokens: int) -> None:
        """Forget the newest tokens of every layer; UnsupportedError where that is not offered."""
        self._open.drop_last(tokens)
        self._last.clear()

    def reset(self) -> None:
        """Forget everything; UnsupportedError where that is not offered."""
        self._open.reset()
        self._last.clear()

    def settle(self) -> None:
        """Let go of what came back, as a model does when its layer has attended."""
        self._open.settle()
        self._last.clear()

    def close(self) -> None:
        """Let go of the holder."""
        self._holder = None
        self._last.clear()

    @property
    def stored_bytes(self) -> int:
        """Not known: UnsupportedError."""
        raise UnsupportedError("what a class holds is not asked of it: measure the process")

    @property
    def _open(self) -> Holder:
        if self._holder is None:
            raise StateError("the cache is closed; prepare another one")
        return self._holder


class ReturningBackend(OwnFormatBackend):
    """A class that hands back what it holds, as a backend of one format, its codec undeclared."""

    variant = "python"
    bound = _BOUND
    #: Recorded with the target: rules about declared codecs do not bind it.
    evidence: Mapping[str, Any] = {"returns": True}

    def __init__(self, name: str, format_: str, claimed_bits: float) -> None:
        """claimed_bits: bits a value that it says it holds, everything counted."""
        self.name = name
        self._formats = {format_: OwnFormat("", "", claimed_bits, _BOUND)}

    @property
    def formats(self) -> Mapping[str, OwnFormat]:
        """The one, by the name of its class."""
        return self._formats

    @abstractmethod
    def holder(self, shape: Spec) -> Holder:
        """An empty one in that shape."""

    def prepare_own(self, name: str, shape: Spec, threads: int = 1) -> ReturnedCache:
        """An empty cache."""
        return ReturnedCache(self.holder(shape), shape)
