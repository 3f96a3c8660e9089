"""TurboVec: TurboQuant for vector search, as the package of that name does it.

Two rounds of permutation, signs and Hadamard blocks; Beta codebook (arXiv 2504.19874); one float32
a vector, the norm times the unbiased scale. TQ+: a shift and a scale a coordinate, fitted on the
first batch after the rotation, so that u_cal = (u + shift) * scale has mean 0 and the variance that
the codebook expects; its dual is <q, u> = <q / scale, u_cal> - <q, shift>.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import codebooks
from .base import F32, F64, Held, Shape
from .eden import scale_factor
from .packing import pack_split, unpack_split
from .rotated import Rotated, unit


class TurboVec(Rotated):
    """Codes and one float32 a vector; with TQ+ also float32 shift and scale (heads, d), fitted.

    calibrate: whether TQ+ is on.
    """

    paper = "turbovec on PyPI; arXiv 2504.19874"
    granularity = "vector; shift and scale a coordinate"
    claim = "none for caches"
    rates = (4.0, 2.0, 3.0)
    learns = True

    def __init__(self, *, calibrate: bool = True, **common: Any) -> None:
        super().__init__(**{"rotation": "turbovec", **common})
        if not isinstance(calibrate, bool):
            raise self._refuse(f"calibrate {calibrate!r} is neither True nor False")
        self.calibrate = calibrate

    def _book(self, bits: int) -> F64:
        return codebooks.beta(bits, self.head_dim)[0]

    def _learn(self, x: F32) -> Held:
        if not self.calibrate:
            return {}
        y = self._rotate(x)
        spread = y.std(axis=1)
        scale = np.where(spread > 1e-6, 1 / np.maximum(spread, 1e-6), 1)
        return {"shift": -y.mean(axis=1), "scale": scale.astype(np.float32)}

    def _rotate(self, x: F32) -> F32:
        y: F32 = unit(x, np.linalg.norm(x, axis=-1, keepdims=True)) @ self._matrix().T
        return y

    def _affine(self) -> tuple[F32, F32]:
        """Shift and scale, (heads, 1, d)."""
        if not self.calibrate:
            return np.zeros((1, 1, 1), np.float32), np.ones((1, 1, 1), np.float32)
        shift, scale = self._learnt("shift"), self._learnt("scale")
        return shift[:, np.newaxis], scale[:, np.newaxis]

    def _pack(self, x: F32) -> Held:
        shift, scale = self._affine()
        y = self._rotate(x)
        codes = self._codes((y + shift) * scale)
        read = self._codeword(codes) / scale - shift
        norm = np.linalg.norm(x, axis=-1) / np.float32(np.sqrt(self.head_dim))
        factor = norm * scale_factor("unbiased", y, read)
        return {**pack_split(codes, self.split), "scales": factor.astype(np.float32)}

    def _rotated(self, held: Held, shape: Shape) -> F32:
        shift, scale = self._affine()
        codes = unpack_split(held, self.split, shape[:2])
        read: F32 = (self._codeword(codes) / scale - shift) * held["scales"][..., np.newaxis]
        return read

    def _score(self, held: Held, shape: Shape, q: F32) -> F32:
        """By the dual: the query takes the affine, codes are read as they are."""
        shift, scale = self._affine()
        codes = self._codeword(unpack_split(held, self.split, shape[:2]))
        query: F32 = q @ self._matrix().T
        offset = (query * shift).sum(axis=-1, keepdims=True)
        products = (query / scale) @ codes.swapaxes(1, 2) - offset
        scores: F32 = products * held["scales"][:, np.newaxis]
        return scores
