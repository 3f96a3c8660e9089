"""RaBitQ: Gao and Long, arXiv 2405.12497; with more bits: Gao and others, arXiv 2409.09913.

After a random rotation the code of a vector is the point of the grid {-(2^b-1)/2, ..., (2^b-1)/2}^d
of largest cosine with it (2409.09913, section 3.2), found by sweeping the scale at which the vector
is rounded. One fp16 number a vector then makes <o, q> unbiased (2405.12497, Theorem 3.2), or the
reconstruction closest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import F32, U8, Codec, Held, Shape, f16, f32
from .eden import SCALES, scale_factor
from .packing import pack, unpack
from .rotations import KINDS, rotation

_CHUNK = 1 << 22  # events a batch: bounds memory


class RaBitQ(Codec):
    """Unsigned codes of b bits and one fp16 number a vector.

    scale: "unbiased" (default for keys), "biased" of least squared error (for values), "matched".
    rotation: as `rotations.KINDS` lists them.
    """

    paper = "arXiv 2405.12497, Theorem 3.2; arXiv 2409.09913, section 3.2"
    granularity = "vector"
    claim = "unbiased, error of order 1 / sqrt(d), asymptotically optimal"
    label = "corroborated: unbiased; else claimed by its authors"
    rates = (4.0, 1.0, 2.0, 3.0, 5.0, 6.0)

    def __init__(self, *, scale: str | None = None, rotation: str = "dense", **common: Any) -> None:
        super().__init__(**common)
        default = "unbiased" if self.role == "key" else "biased"
        self.scale = self._choice("scale", scale or default, SCALES)
        self.rotation = self._choice("rotation", rotation, KINDS)

    def _matrix(self) -> F32:
        return rotation(self.rotation, self.head_dim, self.seed)

    def _pack(self, x: F32) -> Held:
        y = x @ self._matrix().T
        codes = best_codes(y.reshape(-1, self.head_dim), int(self.bits)).reshape(x.shape)
        factor = scale_factor(self.scale, y, self._points(codes))
        return {"codes": pack(codes, int(self.bits)), "scales": f16("a vector's scale", factor)}

    def _unpack(self, held: Held, shape: Shape) -> F32:
        points = self._points(unpack(held["codes"], int(self.bits), self.head_dim))
        scaled: F32 = np.multiply(points, f32(held["scales"])[..., np.newaxis], dtype=np.float32)
        x: F32 = scaled @ self._matrix()
        return x

    def _points(self, codes: U8) -> F32:
        return codes.astype(np.float32) - np.float32((self.levels - 1) / 2)


def best_codes(y: F32, bits: int) -> U8:
    """Codes (n, d) of the grid points of largest cosine with rows y."""
    half = 1 << (bits - 1)
    magnitudes = np.empty(y.shape, np.uint8)
    rows = max(1, _CHUNK // (y.shape[1] * half))
    for start in range(0, len(y), rows):
        part = slice(start, start + rows)
        magnitudes[part] = _best_magnitudes(np.abs(y[part]), half)
    return np.where(y < 0, half - 1 - magnitudes, half + magnitudes).astype(np.uint8)


def _best_magnitudes(a: F32, half: int) -> U8:
    """m in 0 .. half - 1, (n, d): the cosine of m + 1/2 with a >= 0 is largest.

    As the scale t grows from 0, channel i passes from m - 1 to m at t = m / a_i. Along these events
    the product with a grows by a_i and the squared norm by 2 m.
    """
    n, d = a.shape
    if half == 1:
        return np.zeros((n, d), np.uint8)
    level = np.tile(np.arange(1, half), d)
    channel = np.repeat(np.arange(d), half - 1)
    with np.errstate(divide="ignore"):
        when = level / a[:, channel].astype(np.float64)
    order = np.argsort(when, axis=1, kind="stable")
    gain = np.cumsum(a[:, channel][np.arange(n)[:, np.newaxis], order], axis=1, dtype=np.float64)
    dot = a.sum(axis=1, keepdims=True, dtype=np.float64) / 2 + gain
    norm = np.sqrt(d / 4 + np.cumsum(2 * level[order], axis=1))
    start = a.sum(axis=1, keepdims=True, dtype=np.float64) / 2 / np.sqrt(d / 4)
    cosines = np.concatenate([start, dot / norm], axis=1)
    taken = cosines.argmax(axis=1)[:, np.newaxis]
    done = np.empty_like(order)
    np.put_along_axis(done, order, np.broadcast_to(np.arange(order.shape[1]), order.shape), axis=1)
    counts: U8 = (done < taken).reshape(n, d, half - 1).sum(axis=2, dtype=np.uint8)
    return counts
