"""Attention that a model forward calls layer by layer, and the ways to provide it."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kvassay.errors import InputError, StateError
from kvassay.spec import Spec

Floats = npt.NDArray[np.float32]


class Attention(Protocol):
    """Causal attention of the new tokens over themselves and everything given before."""

    def __call__(self, layer: int, q: Floats, k: Floats, v: Floats) -> Floats:
        """Attend with the new tokens of ``layer``.

        q: float32 (tokens, query_heads, head_dim); k, v: float32 (tokens, kv_heads, head_dim);
        q and k after RoPE, without the softmax scale. Returns an array like q.
        """


class KVCache(Protocol):
    """The two calls of a cache that a model forward needs."""

    def append(self, layer: int, k: Floats, v: Floats, /) -> Any:
        """Take new tokens: float32 (tokens, kv_heads, head_dim)."""

    def attend(self, layer: int, q: Floats, /) -> Floats:
        """Attend with one query: float32 (query_heads, head_dim) to the same shape.

        Or with n, (n, query_heads, head_dim), of the n newest tokens.
        """


class FullAttention:
    """Softmax attention in float32 that keeps every key and value, for one sequence.

    Several calls continue the sequence. Queries are worked off in blocks, so scratch is
    ``block`` x tokens scores a KV head rather than tokens x tokens.
    """

    def __init__(
        self,
        scale: float | None = None,
        block: int = 64,
        spans: tuple[int | None, ...] | None = None,
    ) -> None:
        """scale: softmax scale, 1/sqrt(head_dim) by default. block: queries at a time.

        spans: how many of the newest tokens each layer attends, None for all; by default all
        layers attend all. A model's own: ``model.full_attention()``.
        """
        self._scale = scale
        self._block = block
        self._spans = spans
        self._stores: dict[int, _Store] = {}

    @property
    def spans(self) -> tuple[int | None, ...]:
        """As given; empty where all layers attend all."""
        return self._spans or ()

    def length(self, layer: int = 0) -> int:
        """Tokens held by ``layer``."""
        return self._stores[layer].length if layer in self._stores else 0

    def __call__(self, layer: int, q: Floats, k: Floats, v: Floats) -> Floats:
        """Append k and v, then attend causally; see Attention."""
        store = self._stores.setdefault(layer, _Store(k.shape[1], k.shape[2]))
        first = store.length
        store.append(k, v)
        scale = 1.0 / math.sqrt(q.shape[2]) if self._scale is None else self._scale
        scaled = q * np.float32(scale)
        span = self._spans[layer] if self._spans else None
        out = np.empty_like(q)
        for begin in range(0, len(q), self._block):
            end = min(begin + self._block, len(q))
            seen = slice(0 if span is None else max(0, first + begin - span + 1), first + end)
            out[begin:end] = _attend_block(
                scaled[begin:end], store.keys(seen), store.values(seen), span
            )
        return out


class CacheAttention:
    """Attention through a KV cache, token by token unless told otherwise.

    Token by token each query sees the cache right after its own token was appended, as in decoding,
    so no query meets pages that were sealed later. In chunks it may, as in a prefill.
    """

    def __init__(self, cache: KVCache, chunk: int = 1, prompt: int = 1) -> None:
        """cache: anything with the ``append`` and ``attend`` of a kvassay cache.

        chunk: tokens appended before their queries are asked; beyond 1 the cache must take several
        queries at once, (n, query_heads, head_dim). prompt: tokens of the first such piece of each
        call, where that is more.
        """
        if chunk < 1 or prompt < 1:
            raise InputError(f"chunk is {chunk}, prompt {prompt}; both must be positive")
        self._cache = cache
        self._chunk = chunk
        self._prompt = max(chunk, prompt)

    @property
    def spans(self) -> tuple[int | None, ...] | None:
        """The spans of the cache's layers; None for a cache that has no spec to tell them."""
        spec: Spec | None = getattr(self._cache, "spec", None)
        return None if spec is None else tuple(layer.span or None for layer in spec.layer_specs)

    def __call__(self, layer: int, q: Floats, k: Floats, v: Floats) -> Floats:
        """Append and attend one chunk after another; see Attention."""
        out = np.empty_like(q)
        edges = (0, *range(self._prompt, len(q), self._chunk), len(q))
        for begin, end in pairwise(edges if len(q) else ()):
            these = slice(begin, end)
            self._cache.append(layer, k[these], v[these])
            asked = q[begin] if self._chunk == 1 and end - begin == 1 else q[these]
            found = self._cache.attend(layer, asked)
            if found.shape != asked.shape:
                raise InputError(
                    f"attend(layer={layer}) returned shape {found.shape}, expected {asked.shape}"
                )
            out[these] = found
        return out


class CaptureAttention:
    """Records what passes through another attention.

    ``q``, ``k``, ``v`` and, on request, ``out`` give a list with one float32 array a layer,
    (tokens, heads, head_dim), over all calls so far.
    """

    def __init__(self, inner: Attention, outputs: bool = False) -> None:
        """inner: the attention that computes. outputs: keep its results as well."""
        self._inner = inner
        self._outputs = outputs
        self._parts: dict[str, dict[int, list[Floats]]] = {
            name: {} for name in ("q", "k", "v", "out")
        }

    def __call__(self, layer: int, q: Floats, k: Floats, v: Floats) -> Floats:
        """Record, call the inner attention, return its result."""
        out = self._inner(layer, q, k, v)
        for name, array in (("q", q), ("k", k), ("v", v), ("out", out)):
            if name != "out" or self._outputs:
                self._parts[name].setdefault(layer, []).append(array.copy())
        return out

    @property
    def spans(self) -> tuple[int | None, ...] | None:
        """Those of the inner attention; None where it does not tell."""
        return getattr(self._inner, "spans", None)

    @property
    def q(self) -> list[Floats]:
        """Queries by layer, (tokens, query_heads, head_dim)."""
        return self._joined("q")

    @property
    def k(self) -> list[Floats]:
        """Keys by layer, (tokens, kv_heads, head_dim)."""
        return self._joined("k")

    @property
    def v(self) -> list[Floats]:
        """Values by layer, (tokens, kv_heads, head_dim)."""
        return self._joined("v")

    @property
    def out(self) -> list[Floats]:
        """Attention outputs by layer, (tokens, query_heads, head_dim)."""
        if not self._outputs:
            raise StateError("outputs were not recorded: pass outputs=True to CaptureAttention")
        return self._joined("out")

    def _joined(self, name: str) -> list[Floats]:
        parts = self._parts[name]
        return [
            parts[layer][0] if len(parts[layer]) == 1 else np.concatenate(parts[layer])
            for layer in sorted(parts)
        ]


class _Store:
    """Keys and values of one layer, (kv_heads, tokens, head_dim), grown by doubling."""

    def __init__(self, kv_heads: int, head_dim: int) -> None:
        self.length = 0
        self._keys = np.empty((kv_heads, 0, head_dim), dtype=np.float32)
        self._values = self._keys.copy()

    def append(self, k: Floats, v: Floats) -> None:
        end = self.length + len(k)
        if end > self._keys.shape[1]:
            room = max(end, 2 * self._keys.shape[1])
            self._keys = _grown(self._keys, self.length, room)
            self._values = _grown(self._values, self.length, room)
        self._keys[:, self.length : end] = k.transpose(1, 0, 2)
        self._values[:, self.length : end] = v.transpose(1, 0, 2)
        self.length = end

    def keys(self, tokens: slice) -> Floats:
        return self._keys[:, tokens]

    def values(self, tokens: slice) -> Floats:
        return self._values[:, tokens]


def _grown(array: Floats, length: int, room: int) -> Floats:
    larger = np.empty((array.shape[0], room, array.shape[2]), dtype=np.float32)
    larger[:, :length] = array[:, :length]
    return larger


def _attend_block(q: Floats, keys: Floats, values: Floats, span: int | None) -> Floats:
    """The last len(q) tokens attend causally, each the newest ``span`` tokens or all.

    q: (n, query_heads, d); keys and values: (kv_heads, tokens, d).
    """
    n, query_heads, d = q.shape
    kv_heads, tokens, _ = keys.shape
    group = query_heads // kv_heads
    first = tokens - n if span is None else 0  # no token before it is hidden from anyone
    age = np.arange(tokens - n, tokens)[:, None] - np.arange(first, tokens)
    hidden = (age < 0) if span is None else (age < 0) | (age >= span)
    out = np.empty_like(q)
    for head in range(kv_heads):
        mine = slice(head * group, (head + 1) * group)
        queries = q[:, mine].reshape(n * group, d)
        scores = (queries @ keys[head].T).reshape(n, group, tokens)
        np.copyto(scores[:, :, first:], -np.inf, where=hidden[:, None, :])
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        total = scores.sum(axis=-1, keepdims=True)
        weighted = scores.reshape(n * group, tokens) @ values[head]
        out[:, mine] = weighted.reshape(n, group, d) / total
    return out
