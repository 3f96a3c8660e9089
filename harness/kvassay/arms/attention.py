"""Attention that reads keys and values as an arm stores them, a whole sequence at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InputError, SpecError, StateError
from ..models import Capture, ModelConfig
from ..protocol import FloatArray
from ..vector_codec import FITTED, RESIDUAL, Encoded, VectorCodec, codec, codecs, parameters
from .arm import Arm, Stream


@dataclass(frozen=True)
class Stored:
    """Bytes of a layer after a sequence: sealed pages, what was fitted, tokens kept as fp16.

    values: numbers in pages; all_values: numbers in all.
    """

    pages: int
    fitted: int
    fp16: int
    values: int
    all_values: int


LayerCodecs = tuple[VectorCodec, VectorCodec]


def fitted(arm: Arm, config: ModelConfig, learn: Capture) -> tuple[LayerCodecs, ...]:
    """Codecs of keys and values a layer, those that learn fitted on the keys and values of `learn`.

    Raises SpecError for codecs, rates and parameters that do not exist.
    """
    out: list[LayerCodecs] = []
    for layer in range(config.layers):
        keys, values = arm.pair(layer, config.layers)
        first = _sinks(arm, config, layer)
        out.append(
            (
                _make(keys, "key", config, layer).fit(learn.k[layer][first:]),
                _make(values, "value", config, layer).fit(learn.v[layer][first:]),
            )
        )
    return tuple(out)


def _sinks(arm: Arm, config: ModelConfig, layer: int) -> int:
    """None where a layer slides, as in `ModelConfig.shape`: it does not attend its first tokens."""
    return arm.sinks if config.spans[layer] is None else 0


def _make(stream: Stream, role: str, config: ModelConfig, layer: int) -> VectorCodec:
    """A codec that can store keys as they were before RoPE does so."""
    params = dict(stream.params)
    known = codecs()
    takes = parameters(known[stream.name]) if role == "key" and stream.name in known else {}
    if "rope_base" in takes:
        base, divisor = config.rope_of(layer)
        if divisor != 1:
            raise SpecError(
                f"{stream.name}: layer {layer} divides positions by {divisor:g}, which this codec "
                "does not; choose one that stores keys as they are"
            )
        params.setdefault("rope_base", base)
    if "rope_order" in takes and config.family.rope_order == "halves":
        params.setdefault("rope_order", "half")
    return codec(stream.name, head_dim=config.head_dim, bits=stream.bits, role=role, **params)


class StoredAttention:
    """What a query meets in a cache: sinks and newest tokens as fp16, whole pages as codes.

    Layers that slide attend their span and keep no sinks. Every query sees the cache right after
    its own token was appended, as in decoding. Pages do not depend on what comes later, so all of
    them are encoded at once and every query reads those that were sealed in its time. Softmax and
    products are float32.
    """

    def __init__(self, arm: Arm, layers: Sequence[LayerCodecs], config: ModelConfig) -> None:
        self._arm, self._layers, self._config = arm, layers, config
        self.spans = config.spans
        self.stored: dict[int, Stored] = {}

    def __call__(self, layer: int, q: FloatArray, k: FloatArray, v: FloatArray) -> FloatArray:
        """Causal attention over one whole sequence; see kvassay.models.Attention."""
        if layer in self.stored:
            raise StateError("an arm attends over one sequence; make another for the next")
        sinks = _sinks(self._arm, self._config, layer)
        at = sinks + self._pages(len(k), sinks) * self._arm.page
        halves = [x.astype(np.float16).astype(np.float32) for x in (k, v)]
        decoded = [
            self._through(one, half[sinks:at])
            for one, half in zip(self._layers[layer], halves, strict=True)
        ]
        self.stored[layer] = self._bytes([encoded for _, encoded in decoded], k.size)
        rows = [np.ascontiguousarray(half.swapaxes(0, 1)) for half in halves]
        out = np.empty_like(q)
        scaled = q * np.float32(self._config.softmax_scale or 1 / math.sqrt(q.shape[-1]))
        for begin, end, sealed in self._blocks(len(q), sinks):
            for mine, (pages, _) in zip(rows, decoded, strict=True):
                mine[:, sinks:sealed] = pages[:, : max(0, sealed - sinks)]
            keys, values = (mine[:, :end] for mine in rows)
            out[begin:end] = _attend(scaled[begin:end], keys, values, self.spans[layer])
        return out

    def _pages(self, tokens: int, sinks: int) -> int:
        """Whole pages that are sealed after so many tokens."""
        return max(0, (tokens - sinks - self._arm.window) // self._arm.page)

    def _blocks(self, tokens: int, sinks: int) -> Iterator[tuple[int, int, int]]:
        """Queries [begin, end) that see the same pages, and the first token behind those."""
        begin, arm = 0, self._arm
        while begin < tokens:
            pages = self._pages(begin + 1, sinks)
            next_seal = sinks + arm.window + (pages + 1) * arm.page - 1
            end = min(tokens, next_seal)
            yield begin, end, sinks + pages * arm.page if pages else 0
            begin = end

    def _through(self, codec: VectorCodec, x: FloatArray) -> tuple[FloatArray, Encoded | None]:
        """What a codec gives back of whole pages x, by head, and what it holds."""
        if not len(x):
            return x.swapaxes(0, 1), None
        if codec.encode(x[: self._arm.page]).parts.get(RESIDUAL):
            raise SpecError(
                f"arm {self._arm.text!r}: {codec.name} leaves tokens of a page of "
                f"{self._arm.page} as fp16; change page, or the codec's group or first tokens"
            )
        encoded = codec.encode(x)
        return encoded.decode().swapaxes(0, 1), encoded

    def _bytes(self, encoded: Sequence[Encoded | None], size: int) -> Stored:
        parts = [part for one in encoded if one for part in one.parts.items()]
        held = sum(one.values for one in encoded if one)
        learnt = sum(count for name, count in parts if name.startswith(FITTED))
        everything = sum(count for _, count in parts)
        return Stored(everything - learnt, learnt, 2 * (2 * size - held), held, 2 * size)


def _attend(
    q: FloatArray, keys: FloatArray, values: FloatArray, span: int | None = None
) -> FloatArray:
    """The last len(q) tokens attend causally, the newest `span` tokens each or all; q
    (n, query_heads, d), keys (kv_heads, tokens, d).
    """
    n, query_heads, d = q.shape
    kv_heads, tokens, _ = keys.shape
    if query_heads % kv_heads:
        raise InputError(f"{query_heads} query heads do not share {kv_heads} KV heads evenly")
    group = query_heads // kv_heads
    rows = q.reshape(n, kv_heads, group, d).transpose(1, 0, 2, 3).reshape(kv_heads, n * group, d)
    scores = (rows @ keys.swapaxes(1, 2)).reshape(kv_heads, n, group, tokens)
    future = np.triu(np.ones((n, n), np.bool_), 1)
    np.copyto(scores[..., tokens - n :], -np.inf, where=future[:, np.newaxis])
    if span is not None and tokens > span:
        past = np.tril(np.ones((n, tokens), np.bool_), tokens - n - span)
        np.copyto(scores, -np.inf, where=past[:, np.newaxis])
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    total = scores.sum(axis=-1, keepdims=True)
    weighted = scores.reshape(kv_heads, n * group, tokens) @ values
    out: FloatArray = weighted.reshape(kv_heads, n, group, d) / total
    return np.ascontiguousarray(out.transpose(1, 0, 2, 3)).reshape(n, query_heads, d)
