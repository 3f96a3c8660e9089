"""The numeric contract, one line of it after another, in float32: sums, transforms, codes, scales.

Written from docs/numeric-contract.md to name every intermediate, not for speed, and without code of
a backend. Only whole-array additions, multiplications, divisions and square roots of numpy are
used, which round to nearest even one by one; sums run over explicit loops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvassay.streams import Codec

from ..oracle.page import CENTROIDS
from ..oracle.rotation import block_size, draws, gain_exponent, transform_tables

F32 = NDArray[np.float32]
Ints = NDArray[np.int64]
ZERO, ROUNDER = np.float32(0), np.float32(12582912)
LOG2E, LN2 = float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.62e42fefa39efp-1")
QUERY_BOUND, KIVI_QUERY_BOUND, WEIGHT_BOUND = 127, 16256, 16383

_THRESHOLDS: Final = {
    4: (("0x1.f6a4f8p-1",),),
    5: (("0x1.f5a7a6p-1",), ("0x1.014248p-1", "0x1.0e1f32p+0", "0x1.c233fep+0")),
    6: (("0x1.012430p-1", "0x1.0e7118p+0", "0x1.bfc7d8p+0"),),
    7: (
        ("0x1.03518ep-1", "0x1.0b6c1ap+0", "0x1.bdb42ap+0"),
        (
            *("0x1.03518ep-2", "0x1.03518ep-1", "0x1.952f6cp-1", "0x1.1ba132p+0"),
            *("0x1.74c53ap+0", "0x1.de1e5cp+0", "0x1.33f0d8p+1"),
        ),
    ),
    8: (
        (
            *("0x1.134566p-2", "0x1.134566p-1", "0x1.9ce818p-1", "0x1.190182p+0"),
            *("0x1.6f0732p+0", "0x1.d64138p+0", "0x1.32d004p+1"),
        ),
    ),
}
_EX2: Final = [
    np.float32(float.fromhex(text))
    for text in (
        *("0x1p+0", "0x1.62e42ap-1", "0x1.ebf9bcp-3"),
        *("0x1.c6b752p-5", "0x1.3cea88p-7", "0x1.5bba14p-10"),
    )
]


def const(value: float) -> np.float32:
    """A binary64 value rounded once."""
    return np.float32(value)


def f16s(x: Any) -> NDArray[np.float16]:
    """To fp16, overflow to the largest."""
    limited = np.clip(np.asarray(x, np.float32), np.float32(-65504), np.float32(65504))
    return limited.astype(np.float16)


def rne(x: F32) -> F32:
    """Round to nearest even, section 0."""
    rounded: F32 = (x + ROUNDER) - ROUNDER
    return rounded


def sum16(terms: F32) -> F32:
    """S16 over the last axis: stripes, then the tree."""
    stripes = np.zeros((*terms.shape[:-1], 16), np.float32)
    for start in range(0, terms.shape[-1], 16):
        part = terms[..., start : start + 16]
        stripes[..., : part.shape[-1]] += part
    for half in (8, 4, 2, 1):
        stripes = stripes[..., :half] + stripes[..., half : 2 * half]
    total: F32 = stripes[..., 0]
    return total


def dot16(a: F32, b: F32) -> F32:
    """D16 over the last axis."""
    return sum16(a * b)


def ordered_sum(rows: F32) -> F32:
    """Sum over the first axis, one row after another."""
    total = np.zeros(rows.shape[1:], np.float32)
    for row in rows:
        total = total + row
    return total


def integers(z: F32, bound: int) -> tuple[Ints, F32]:
    """qi and qs of section 7 over the last axis."""
    a = np.abs(z).max(axis=-1)
    safe: F32 = np.where(a == 0, np.float32(1), a)
    qi = np.where(a[..., None] == 0, ZERO, rne(z * (np.float32(bound) / safe)[..., None]))
    return qi.astype(np.int64), a * const(1 / bound)


def ex2(x: F32) -> F32:
    """Section 10; x <= 0."""
    w = x + ROUNDER
    r = x - (w - ROUNDER)
    p = np.full_like(x, _EX2[5])
    for coefficient in reversed(_EX2[:5]):
        p = p * r + coefficient
    with np.errstate(over="ignore"):
        bits = p.view(np.uint32) + (w.view(np.uint32) << np.uint32(23))
    raised: F32 = np.where(x < -64, ZERO, bits.view(np.float32))
    return raised


@dataclass(frozen=True)
class Transform:
    """T of one stream: tables, and the two parts of its gain."""

    signs1: F32
    order: Ints
    signs2: F32
    rounds: int
    store: np.float32
    read: np.float32

    @classmethod
    def of(cls, head_dim: int, seed: int, stream: int, rounds: int) -> Transform:
        """Stream 0 of keys, 1 of values, 2 of signs."""
        first, order, second = transform_tables(draws(seed, stream), head_dim, rounds)
        exponent = gain_exponent(head_dim, rounds)
        store, read = 2.0 ** -math.ceil(exponent / 2), 2.0 ** -math.floor(exponent / 2)
        return cls(
            first.astype(np.float32),
            np.array(order, np.int64),
            second.astype(np.float32),
            rounds,
            const(store),
            const(read),
        )

    def forward(self, x: F32) -> F32:
        """T over the last axis."""
        y = _hadamard(self.signs1 * x)
        return _hadamard(self.signs2 * y[..., self.order]) if self.rounds == 2 else y

    def back(self, y: F32) -> F32:
        """T' over the last axis."""
        x = _hadamard(y)
        if self.rounds == 2:
            scattered = np.empty_like(x)
            scattered[..., self.order] = self.signs2 * x
            x = _hadamard(scattered)
        turned: F32 = self.signs1 * x
        return turned


def _hadamard(x: F32) -> F32:
    y = x.copy()
    block, h = block_size(x.shape[-1]), 1
    channel = np.arange(x.shape[-1])
    while h < block:
        low = channel[(channel & h) == 0]
        a, b = y[..., low], y[..., low + h]
        y[..., low], y[..., low + h] = a + b, a - b
        h *= 2
    return y


@dataclass(frozen=True)
class Codebook:
    """Thresholds and centroids of each span of channels: (first channel, channels, both)."""

    spans: tuple[tuple[int, int, tuple[float, ...], tuple[int, ...]], ...]

    @classmethod
    def of(cls, codec: Codec, head_dim: int) -> Codebook:
        """The tables of section 5."""
        key = round(2 * codec.bits)
        return cls(
            tuple(
                (first, channels, tuple(map(float.fromhex, limits)), half)
                for (first, channels, _), limits, half in zip(
                    codec.splits(head_dim), _THRESHOLDS[key], CENTROIDS[key], strict=True
                )
            )
        )

    def encode(self, y: F32, sigma: F32) -> tuple[Ints, F32]:
        """Codes of y (..., d) and their centroids."""
        codes = np.zeros(y.shape, np.int64)
        levels = np.zeros(y.shape, np.float32)
        for first, channels, limits, half in self.spans:
            part = y[..., first : first + channels]
            above = np.zeros(part.shape, np.int64)
            for limit in limits:
                above += np.abs(part) >= (np.float32(limit) * sigma)[..., None]
            count = len(half)
            code = np.where(part < 0, count - 1 - above, count + above)
            code = np.where((sigma == 0)[..., None], count, code)
            table = np.array([*(-c for c in reversed(half)), *half], np.float32)
            codes[..., first : first + channels] = code
            levels[..., first : first + channels] = table[code]
        return codes, levels


@dataclass(frozen=True)
class Scales:
    """Scales of a page as stored and as read back: the scale is su * unit."""

    stored: NDArray[Any]
    maximum: F32 | None
    su: F32
    unit: F32


def store_scales(kind: str, scales: F32) -> Scales:
    """Section 5, item 4; scales (heads, tokens)."""
    if kind == "fp16":
        stored = f16s(scales)
        return Scales(stored, None, stored.astype(np.float32), np.ones(len(scales), np.float32))
    most = scales.max(axis=-1)
    safe: F32 = np.where(most == 0, np.float32(1), most)[:, None]
    if kind == "u8":
        u = np.where(most[:, None] == 0, ZERO, rne(scales * (np.float32(255) / safe)))
        return Scales(u.astype(np.uint8), most, u, most * const(1 / 255))
    index = 255 - np.arange(1, 256)
    half = np.array([const(2.0 ** (-(m + 0.5) / 16)) for m in range(16)])
    full = np.array([const(2.0 ** (-m / 16)) for m in range(16)])
    limits = half[index % 16] * const(1) * (2.0 ** -(index // 16)).astype(np.float32)
    ratio = scales / safe
    counted = (ratio[..., None] >= limits).sum(axis=-1)
    u8 = np.where(most[:, None] == 0, 0, counted)
    back = 255 - u8
    su = np.where(u8 == 0, ZERO, full[back % 16] * (2.0 ** -(back // 16)).astype(np.float32))
    return Scales(u8.astype(np.uint8), most, su.astype(np.float32), most)
