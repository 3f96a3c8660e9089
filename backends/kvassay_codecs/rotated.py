"""Codecs that rotate a vector and code each channel by one codebook, with one scale a vector."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from . import codebooks
from .base import F32, F64, U8, Codec, Held, Shape, f16, f32
from .packing import pack_split, split_rate, unpack_split
from .rotations import KINDS, rotation


class Rotated(Codec):
    """Codes of sqrt(d) R x / |x| by Lloyd-Max codebooks, and one fp16 number a vector.

    A fractional rate gives that share of the rotated channels one bit more: 2.5 is half at 3 and
    half at 2 bits; 2.25 is a quarter at 3 bits (the split that arXiv 2504.19874 calls 2.5).
    rotation: as `rotations.KINDS` lists them.
    """

    rates: ClassVar[tuple[float, ...]] = (3.0, 1.0, 2.0, 2.25, 2.5, 3.25, 3.5, 4.0, 5.0, 6.0)

    def __init__(self, *, rotation: str = "two-rounds", **common: Any) -> None:
        super().__init__(**common)
        self.rotation = self._choice("rotation", rotation, KINDS)
        self._matrix()  # a head dim that this rotation does not have is refused now
        self.split = split_rate(self.bits, self.head_dim)

    def _book(self, bits: int) -> F64:
        """Centroids of a code of `bits`, for channels of variance 1."""
        return codebooks.gaussian(bits)[0]

    def _multiplier(self, y: F32, q: F32) -> F32:
        """The number to store with unit-variance y and codeword q (..., d): x_hat = number R' q."""
        raise NotImplementedError

    def _matrix(self) -> F32:
        return rotation(self.rotation, self.head_dim, self.seed)

    def _pack(self, x: F32) -> Held:
        norm = np.linalg.norm(x, axis=-1, keepdims=True)
        y = unit(x, norm) @ self._matrix().T
        codes = self._codes(y)
        scale = norm[..., 0] * self._multiplier(y, self._codeword(codes))
        return {**pack_split(codes, self.split), "scales": f16("a vector's scale", scale)}

    def _unpack(self, held: Held, shape: Shape) -> F32:
        x: F32 = self._rotated(held, shape) @ self._matrix()
        return x

    def _score(self, held: Held, shape: Shape, q: F32) -> F32:
        """The query is rotated once; no key is rotated back."""
        query: F32 = q @ self._matrix().T
        scores: F32 = query @ self._rotated(held, shape).swapaxes(1, 2)
        return scores

    def _rotated(self, held: Held, shape: Shape) -> F32:
        """R x_hat."""
        q = self._codeword(unpack_split(held, self.split, shape[:2]))
        scales = f32(held["scales"])[..., np.newaxis]
        return np.multiply(q, scales, dtype=np.float32)

    def _codes(self, y: F32) -> U8:
        parts, at = [], 0
        for channels, bits in self.split:
            parts.append(codebooks.nearest(y[..., at : at + channels], self._book(bits)))
            at += channels
        return np.concatenate(parts, axis=-1)

    def _codeword(self, codes: U8) -> F32:
        parts: list[F32] = []
        at = 0
        for channels, bits in self.split:
            parts.append(self._book(bits).astype(np.float32)[codes[..., at : at + channels]])
            at += channels
        return np.concatenate(parts, axis=-1)


def unit(x: F32, norm: F32) -> F32:
    """x scaled to norm sqrt(d), so that its channels have variance 1; zero vectors stay zero."""
    safe: F32 = np.where(norm > 0, norm, np.float32(1)).astype(np.float32)
    scaled: F32 = np.multiply(x, np.float32(x.shape[-1] ** 0.5) / safe, dtype=np.float32)
    return scaled
