"""What a cache costs before it exists: bytes, bits, bandwidth, and the work of the transform.

Two kinds of figures. The *formulas* at the top count code bits and are what papers quote. The
functions that take a spec count bytes exactly, from the page layout (docs/page-format.md) and the
life cycle (docs/lifecycle.md); they leave out what depends on the backend: scratch, staging and
bookkeeping. L layers, H KV heads, d head dim, T tokens, P tokens a page; "a value" is one number
of one key or value vector.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..spec import LayerSpec, Spec
from .layout import HEADER_SIZE, PageLayout

FP16_BITS: Final = 16
_SCAN: Final = 1 << 16


# --- formulas -------------------------------------------------------------------------------------


def payload(values: int, bits: float) -> float:
    """Bytes of `values` numbers of `bits` bits each: fp16 takes 2 L H d * 2 bytes a token."""
    return values * bits / 8


def page_bits(
    bits: float, scale_bits: float, page_tokens: int, kv_heads: int, head_dim: int, aux: float = 0
) -> float:
    """Bits a value of a page of one stream: b + (b_scale + b_aux)/d + 512/(P H d).

    `scale_bits` and `aux` are bits a vector: 8 for a u8 scale, 24 for an outlier (u8 index and
    fp16 value).
    """
    header = 8 * HEADER_SIZE / (page_tokens * kv_heads * head_dim)
    return bits + (scale_bits + aux) / head_dim + header


def split_bits(*parts: tuple[int, float]) -> float:
    """Mean bits of a channel split, (channels, bits) each: 32 at 3 and 96 at 2 is 2.25, not 2.5."""
    return sum(n * bits for n, bits in parts) / sum(n for n, _ in parts)


def compression(key_bits: float, value_bits: float) -> float:
    """Against fp16, R = 4 / ((bK + bV)/8)."""
    return 2 * FP16_BITS / (key_bits + value_bits)


def vector_bytes(head_dim: int, bits: float, extra: int = 8) -> float:
    """Bytes of a vector stored alone, d b / 8 + extra (a float32 scale and a float32 norm)."""
    return head_dim * bits / 8 + extra


def saved_bytes(values: int, key_bits: float, value_bits: float) -> float:
    """Bytes a decode step reads less than fp16: T L H d (4 - (bK + bV)/8); `values` is T L H d."""
    return values * (2 * FP16_BITS - key_bits - value_bits) / 8


def longest(budget: float, fixed: float, values: int, key_bits: float, value_bits: float) -> int:
    """Tokens in a budget, (C - M_fixed) / (L H d (bK + bV)/8); `values` is L H d."""
    return max(0, math.floor((budget - fixed) / (values * (key_bits + value_bits) / 8)))


def payback(append_ops: float, op_seconds: float, saved: float, bandwidth: float) -> float:
    """Decode steps until an append is paid back, G* = C_append tau / (dB / BW).

    `append_ops` operations of `op_seconds` each; `saved` bytes a step at `bandwidth` bytes a
    second. Infinite where nothing is saved.
    """
    return append_ops * op_seconds * bandwidth / saved if saved > 0 else math.inf


def dense_work(head_dim: int) -> int:
    """Multiplications of a dense transform of one vector: d^2."""
    return head_dim * head_dim


def padded_work(head_dim: int) -> int:
    """Operations of signs and a Hadamard transform on the next power of two p: p log2 p + p."""
    p = 1 << (head_dim - 1).bit_length()
    return p * (p.bit_length() - 1) + p


def blocked_work(head_dim: int, rounds: int = 2) -> int:
    """Operations of kvassay's transform: a round is d signs and d log2 B, B the block length."""
    block = head_dim & -head_dim
    return rounds * (head_dim + head_dim * (block.bit_length() - 1))


# --- exact bytes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerCost:
    """What the formulas of one layer need, in bytes."""

    token: int
    page: int
    means: int
    spec: LayerSpec

    @classmethod
    def of(cls, spec: LayerSpec) -> LayerCost:
        """Costs of a layer: an fp16 token (keys and values), a page, and the frozen means."""
        vector = 2 * spec.kv_heads * spec.head_dim
        frozen = (spec.key_centre == "frozen") + (spec.value_centre == "frozen")
        return cls(2 * vector, PageLayout(spec).size, frozen * vector, spec)

    def sealed(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Pages ever sealed after that many tokens."""
        spec = self.spec
        beyond: NDArray[np.int64] = np.maximum(0, tokens - spec.sinks - spec.window)
        return beyond // spec.page_tokens

    def pages(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Pages held after that many tokens, appended one by one.

        A page out of the span's reach is retired at the start of the next append.
        """
        spec = self.spec
        sealed = self.sealed(tokens)
        if not spec.span:
            return sealed
        unreachable = np.maximum(0, tokens - 1 - spec.span - spec.sinks)
        live: NDArray[np.int64] = sealed - np.minimum(unreachable // spec.page_tokens, sealed)
        return live

    def held(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bytes held after that many tokens: pages, frozen means, sinks and residual."""
        sealed = self.sealed(tokens)
        plain = tokens - sealed * self.spec.page_tokens
        held: NDArray[np.int64] = self.pages(tokens) * self.page + plain * self.token
        return held + (sealed > 0) * self.means

    @property
    def slope(self) -> float:
        """Bytes a token adds in the long run: none once a span retires as much as it seals."""
        return 0.0 if self.spec.span else self.page / self.spec.page_tokens

    @property
    def ceiling(self) -> float:
        """A constant c with held(T) <= slope T + c for every T."""
        spec = self.spec
        plain = spec.sinks + spec.window + spec.page_tokens
        pages = -(-(spec.span + spec.window) // spec.page_tokens) + 2 if spec.span else 0
        return max(0.0, self.token - self.slope) * plain + pages * self.page + self.means


@dataclass(frozen=True)
class Costs:
    """Exact bytes of a spec."""

    spec: Spec
    layers: tuple[LayerCost, ...]

    @classmethod
    def of(cls, spec: Spec) -> Costs:
        """Costs of every layer, overrides included."""
        return cls(spec, tuple(LayerCost.of(layer) for layer in spec.layer_specs))

    @property
    def values(self) -> int:
        """Numbers a token stores in keys and values of all layers: 2 L H d."""
        return sum(2 * c.spec.kv_heads * c.spec.head_dim for c in self.layers)

    @property
    def code_bits(self) -> float:
        """Mean bits of the codes of a key and of a value, together: bK + bV (signs included)."""
        total = sum(
            (c.spec.keys.bits + c.spec.keys.qjl + c.spec.values.bits)
            * c.spec.kv_heads
            * c.spec.head_dim
            for c in self.layers
        )
        return 2 * total / self.values

    @property
    def page_bits(self) -> float:
        """Bits a value of sealed pages, everything in the page counted."""
        stored = sum(c.page / c.spec.page_tokens for c in self.layers)
        return 8 * stored / self.values

    def held(self, tokens: int) -> int:
        """Bytes held after `tokens` tokens."""
        return int(self._held(np.array([_tokens(tokens)], np.int64))[0])

    def fp16(self, tokens: int) -> int:
        """Bytes of the same tokens as plain fp16, without any header."""
        return 2 * self.values * _tokens(tokens)

    def all_in_bits(self, tokens: int) -> float:
        """Bytes held x 8 / values held, at a length of at least one token.

        With a span the values held are those of live pages, residual and sinks.
        """
        length = np.array([_tokens(tokens, least=1)], np.int64)
        values = 0
        for cost in self.layers:
            spec = cost.spec
            sealed = spec.sealed(tokens)
            live = int(cost.pages(length)[0])
            kept = tokens - (sealed - live) * spec.page_tokens
            values += 2 * spec.kv_heads * spec.head_dim * kept
        return 8 * self.held(tokens) / values

    def parts(self, tokens: int) -> dict[str, int]:
        """Bytes held after `tokens` tokens by part, named as in `Cache.nbytes`; sum is `held`."""
        parts = dict.fromkeys(("codes", "scales", "means", "headers", "residual", "sinks"), 0)
        length = np.array([_tokens(tokens)], np.int64)
        for cost in self.layers:
            spec = cost.spec
            pages, sealed = int(cost.pages(length)[0]), spec.sealed(tokens)
            for part, size in PageLayout(spec).parts.items():
                parts[part] += pages * size
            sinks = min(tokens, spec.sinks)
            parts["means"] += cost.means if sealed else 0
            parts["sinks"] += sinks * cost.token
            parts["residual"] += (tokens - sinks - sealed * spec.page_tokens) * cost.token
        return parts

    def fixed(self) -> int:
        """Bytes that do not grow with context: sinks, window and frozen means."""
        return sum(c.token * (c.spec.sinks + c.spec.window) + c.means for c in self.layers)

    def saved(self, tokens: int) -> int:
        """Bytes a decode step over all tokens held reads less than an fp16 cache does."""
        return self.fp16(tokens) - self.held(tokens)

    def longest(self, budget: int) -> int | None:
        """The longest context that never holds more than `budget` bytes on its way there.

        None if no length exceeds the budget, which a span makes possible.
        """
        if budget < 0:
            raise InputError(f"budget: {budget} bytes; a budget is not negative")
        slope = sum(cost.slope for cost in self.layers)
        ceiling = sum(cost.ceiling for cost in self.layers)
        safe = math.floor((budget - ceiling) / slope) - 1 if slope else 0
        start = max(0, safe)
        horizon = None if slope else self._settled()
        while horizon is None or start <= horizon:
            lengths = np.arange(start, start + _SCAN, dtype=np.int64)
            over = np.flatnonzero(self._held(lengths) > budget)
            if over.size:
                return start + int(over[0]) - 1
            start += _SCAN
        return None

    def append_ops(self) -> int:
        """Operations that a token costs on its way into pages, L H (pack + rotate + quantize).

        Of each stream: a shift and an or a coordinate to pack, the transform where the codec
        rotates, and a comparison a coordinate and threshold to quantize.
        """
        total = 0
        for cost in self.layers:
            spec = cost.spec
            for codec in (spec.keys, spec.values):
                if codec.family == "fp16":
                    continue
                rotate = blocked_work(spec.head_dim, spec.rounds) if codec.rotated else 0
                quantize = sum(n * (1 << bits - 1) for _, n, bits in codec.splits(spec.head_dim))
                total += spec.kv_heads * (2 * spec.head_dim + rotate + quantize)
        return total

    def _held(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        held = np.zeros_like(tokens)
        for cost, count in Counter(self.layers).items():
            held += count * cost.held(tokens)
        return held

    def _settled(self) -> int:
        """A length from which every layer's bytes only repeat."""
        periods = math.lcm(*(c.spec.page_tokens for c in self.layers))
        return _most(c.spec.span + c.spec.sinks + c.spec.window for c in self.layers) + 3 * periods


def _most(values: Iterable[int]) -> int:
    return max(values, default=0)


def _tokens(tokens: int, least: int = 0) -> int:
    if tokens < least:
        raise InputError(f"tokens: {tokens}; at least {least} needed")
    return tokens
