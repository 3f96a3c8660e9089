"""TurboQuant: Zandieh, Daliri, Hadian, Mirrokni, arXiv 2504.19874.

Algorithm 1 (`turboquant_mse`): rotate x / |x|, take the nearest centroid of the Beta marginal in
each coordinate, keep |x|. Algorithm 2 (`turboquant_prod`): the same with one bit less, then the
signs of S r of the residual r and its norm g; x_hat += sqrt(pi/2) / d * g * S' signs. In the paper
S has independent N(0, 1) entries and g is stored; in the released code S is orthogonal and g is
one constant a rate (`turboquant_prod_released`).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final

import numpy as np

from . import codebooks
from .base import F32, F64, Held, Shape, f16, f32
from .packing import pack, unpack
from .rotated import Rotated, unit
from .rotations import generator, rotation

#: Norm of the residual of a unit vector that the released code assumes, by total bits.
RELEASED_NORMS: Final = {1: 1.0, 2: 0.60281, 3: 0.3426687, 4: 0.185758}
_SIGNS: Final = 1  # random stream of S


class TurboQuantMSE(Rotated):
    """Algorithm 1. Stores codes and |x| as fp16; the reconstruction is not rescaled.

    rotation: "dense" as in the paper, or one of the structured ones. codebook: "beta", of the exact
    marginal of the head dim, or "gaussian", its limit.
    """

    paper = "arXiv 2504.19874, Algorithm 1"
    granularity = "vector"
    claim = "squared error .36, .117, .03, .009 at 1 to 4 bits"
    label = "corroborated"

    def __init__(self, *, rotation: str = "dense", codebook: str = "beta", **common: Any) -> None:
        super().__init__(rotation=rotation, **common)
        self.codebook = self._choice("codebook", codebook, ("beta", "gaussian"))

    def _book(self, bits: int) -> F64:
        if self.codebook == "gaussian":
            return codebooks.gaussian(bits)[0]
        return codebooks.beta(bits, self.head_dim)[0]

    def _multiplier(self, y: F32, q: F32) -> F32:
        return np.full(y.shape[:-1], 1 / math.sqrt(self.head_dim), np.float32)


class TurboQuantProd(TurboQuantMSE):
    """Algorithm 2: one bit less for the codes, one bit of sign projection, fp16 |x| and |r|."""

    paper = "arXiv 2504.19874, Algorithm 2"
    granularity = "vector"
    claim = "d times the squared error of products 1.57, .56, .18, .047 at 1 to 4 bits"
    label = "corroborated at 1 to 3 bits, else claimed by its authors"
    rates: ClassVar[tuple[float, ...]] = (3.0, 1.0, 2.0, 2.5, 3.5, 4.0, 5.0)

    def __init__(self, **common: Any) -> None:
        total = common["bits"]
        super().__init__(**{**common, "bits": total - 1})
        self.bits = total

    def _pack(self, x: F32) -> Held:
        y = unit(x, np.linalg.norm(x, axis=-1, keepdims=True)) @ self._matrix().T
        residual = y - self._codeword(self._codes(y))
        signs = (residual @ self._projection().T >= 0).astype(np.uint8)
        norms = np.linalg.norm(residual, axis=-1) / np.float32(math.sqrt(self.head_dim))
        return {**super()._pack(x), "signs": pack(signs, 1), **self._hold_norms(norms)}

    def _hold_norms(self, norms: F32) -> Held:
        return {"residual norms": f16("a residual norm", norms)}

    def _norms(self, held: Held) -> F32:
        """|r| of unit vectors, (heads, tokens)."""
        return f32(held["residual norms"])

    def _rotated(self, held: Held, shape: Shape) -> F32:
        scale = f32(held["scales"])[..., np.newaxis]
        signs = unpack(held["signs"], 1, self.head_dim).astype(np.float32) * 2 - 1
        # sqrt(pi/2)/d |r| S' signs, times sqrt(d), since codewords are of vectors of that norm.
        gain = np.float32(math.sqrt(math.pi / 2 / self.head_dim))
        norms = self._norms(held)[..., np.newaxis] * gain
        out: F32 = super()._rotated(held, shape) + scale * norms * (signs @ self._projection())
        return out

    def _projection(self) -> F32:
        """S, (d, d)."""
        d = self.head_dim
        return generator(self.seed, d, _SIGNS).standard_normal((d, d)).astype(np.float32)


class TurboQuantProdReleased(TurboQuantProd):
    """Algorithm 2 as in the released code: orthogonal S, a constant for the residual's norm."""

    paper = "arXiv 2504.19874, Algorithm 2 as in the released code"
    granularity = "vector"
    claim = "none of its own: the paper describes the other form"
    rates = (3.0, 1.0, 2.0, 4.0)

    def _hold_norms(self, norms: F32) -> Held:
        return {}

    def _norms(self, held: Held) -> F32:
        return np.full(held["scales"].shape, RELEASED_NORMS[int(self.bits)], np.float32)

    def _projection(self) -> F32:
        d = self.head_dim
        return rotation("dense", d, self.seed + 1) * np.float32(math.sqrt(d))
