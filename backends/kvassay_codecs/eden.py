"""DRIVE and EDEN: one scale a vector that makes rotate-and-quantize optimal or unbiased.

DRIVE: Vargaftik and others, arXiv 2105.08339. EDEN: arXiv 2108.08842. With y = R x and codeword q,
x_hat = S |x| / |y| R' q, where S = <y, q> / |q|^2 has the least squared error, 1 - c^2 of |x|^2
(c the cosine of y and q), and S = |y|^2 / <y, q> is unbiased over R, with error 1/c^2 - 1 and
<x, x_hat> = |x|^2 for every single vector.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import F32
from .rotated import Rotated

SCALES = ("biased", "matched", "unbiased")


def scale_factor(kind: str, y: NDArray[Any], q: NDArray[Any]) -> NDArray[Any]:
    """S for rows y and codewords q (..., d); 0 where y is 0.

    "biased" <y,q>/|q|^2 (EDEN, section 3), "unbiased" |y|^2/<y,q> (EDEN, section 4; DRIVE, section
    4.2; RaBitQ, Theorem 3.2), "matched" |y|/|q|, which is their geometric mean.
    """
    n2, dot, q2 = (y * y).sum(-1), (y * q).sum(-1), (q * q).sum(-1)
    top, bottom = {
        "biased": (dot, q2),
        "matched": (np.sqrt(n2), np.sqrt(q2)),
        "unbiased": (n2, dot),
    }[kind]
    return np.where(n2 > 0, top / np.where(bottom > 0, bottom, 1), 0)


class EdenBiased(Rotated):
    """Codes and one fp16 number, |x| / sqrt(d) times the scale of least squared error."""

    paper = "arXiv 2108.08842, section 3"
    granularity = "vector"
    claim = "squared error D of Lloyd-Max at large d"
    label = "corroborated"
    scale = "biased"

    def _multiplier(self, y: F32, q: F32) -> F32:
        factor = scale_factor(self.scale, y, q) / np.sqrt(self.head_dim)
        return np.asarray(factor, np.float32)


class EdenUnbiased(EdenBiased):
    """Codes and one fp16 number, |x| / sqrt(d) times the unbiased scale."""

    paper = "arXiv 2108.08842, section 4"
    granularity = "vector"
    claim = "squared error D / (1 - D) at large d, unbiased"
    scale = "unbiased"


class Drive(EdenUnbiased):
    """One bit a coordinate, the sign, after signs and one Hadamard transform; unbiased scale."""

    paper = "arXiv 2105.08339, Algorithm 1"
    granularity = "vector"
    claim = "squared error pi/2 - 1 = .571 at large d, unbiased"
    rates = (1.0,)

    def __init__(self, *, rotation: str = "one-round", **common: Any) -> None:
        super().__init__(rotation=rotation, **common)
