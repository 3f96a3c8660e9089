"""QServe: Lin and others, arXiv 2405.04532, section 4.2 (SmoothAttention) and KV4.

Asymmetric 4-bit rounding per token and head, fp16 scale (max - min) / 15 and fp16 zero. Keys are
divided by lambda_i = max|K_i|^alpha first (equation 8), tied over channels i and i + d/2 so that it
commutes with RoPE, and the query is multiplied by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import minmax
from .base import F32, Codec, Held, Shape, f16, f32


class QServe(Codec):
    """Codes, fp16 step and minimum a vector; for keys also fp16 lambda (heads, d/2), fitted.

    alpha: the exponent, .5 as published; 0 turns the smoothing off.
    """

    paper = "arXiv 2405.04532, section 4.2"
    granularity = "vector"
    claim = "4-bit caches at nearly the accuracy of 8 bits"
    rates = (4.0, 8.0)
    learns = True

    def __init__(self, *, alpha: float = 0.5, **common: Any) -> None:
        super().__init__(**common)
        if not 0 <= alpha <= 1:
            raise self._refuse(f"alpha {alpha!r} is outside 0 .. 1")
        self.alpha = alpha if self.role == "key" else 0.0

    def _learn(self, x: F32) -> Held:
        if not self.alpha:
            return {}
        largest = np.abs(x).max(axis=1).reshape(len(x), 2, -1).max(axis=1)
        smooth = np.where(largest > 0, largest**self.alpha, 1)
        # Clear of subnormals, whose rounding would not cancel.
        return {"lambda": f16("lambda", np.maximum(smooth, 2.0**-14))}

    def _lambda(self) -> F32:
        """(heads, 1, d) or 1."""
        if not self.alpha:
            return np.ones((1, 1, 1), np.float32)
        return np.tile(f32(self._learnt("lambda")), 2)[:, np.newaxis]

    def _pack(self, x: F32) -> Held:
        return minmax.encode(x / self._lambda(), int(self.bits))

    def _unpack(self, held: Held, shape: Shape) -> F32:
        keys: F32 = minmax.decode(held, int(self.bits), self.head_dim)
        return np.multiply(keys, self._lambda(), dtype=np.float32)

    def _score(self, held: Held, shape: Shape, q: F32) -> F32:
        """The query takes lambda; keys stay as they are held."""
        keys = minmax.decode(held, int(self.bits), self.head_dim)
        query: F32 = np.multiply(q, self._lambda(), dtype=np.float32)
        scores: F32 = query @ keys.swapaxes(1, 2)
        return scores
