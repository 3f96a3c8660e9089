"""KVarN: Muller and others, arXiv 2606.03458.

A Hadamard transform of the channels, then the variance of a tile of tokens is made uniform along
both axes by turns, then plain rounding to nearest. No calibration, no codebook.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvassay.vector_codec import RESIDUAL

from . import minmax
from .base import F32, Codec, Held, Shape, f16, f32, residual, with_residual
from .rotations import rotation

_TURNS = 4


class KVarN(Codec):
    """Codes, fp16 step and minimum a token, fp16 scale a channel of every tile of tokens.

    The scale of a token is part of its step. Tokens beyond the last whole tile are fp16.
    tile: tokens that share the scales of channels.
    """

    paper = "arXiv 2606.03458"
    granularity = "token, and channel of 128 tokens"
    claim = "state of the art at 2 bits on MATH500, AIME24 and HumanEval"
    rates = (2.0, 3.0, 4.0, 8.0)

    def __init__(self, *, tile: int = 128, **common: Any) -> None:
        super().__init__(**common)
        self._matrix()  # a head dim without a Hadamard matrix is refused now
        self.tile = self._integer("tile", tile, 16, 1024)

    def _matrix(self) -> F32:
        return rotation("hadamard", self.head_dim)

    def _pack(self, x: F32) -> Held:
        heads, tokens, d = x.shape
        at = tokens - tokens % self.tile
        if not at:
            return residual(x)
        y = (x[:, :at] @ self._matrix().T).reshape(heads, -1, self.tile, d)
        channels = f16("a channel's scale", _channel_scales(y))
        held = minmax.encode(y / f32(channels), int(self.bits))
        return {**held, "channel scales": channels, **residual(x[:, at:])}

    def _unpack(self, held: Held, shape: Shape) -> F32:
        heads, tokens, d = shape
        if tokens < self.tile:
            return f32(held[RESIDUAL])
        y = minmax.decode(held, int(self.bits), d) * f32(held["channel scales"])
        sealed: F32 = np.asarray(y, np.float32).reshape(heads, -1, d) @ self._matrix()
        return with_residual(sealed, held)


def _channel_scales(y: F32) -> F32:
    """(heads, tiles, 1, d): scales of channels once both axes of a tile have unit spread.

    The scales of tokens need not be known: a token's own step and minimum absorb them.
    """
    tokens = np.ones((*y.shape[:3], 1), np.float32)
    channels = np.ones((*y.shape[:2], 1, y.shape[3]), np.float32)
    for _ in range(_TURNS):
        tokens = _spread(np.divide(y, channels, dtype=np.float32), axis=3)
        channels = _spread(np.divide(y, tokens, dtype=np.float32), axis=2)
    # Only ratios matter; near 1 they are far from both ends of fp16.
    mean = np.exp(np.log(channels).mean(axis=3, keepdims=True))
    scales: F32 = np.clip(channels / mean, 2.0**-10, 2.0**10).astype(np.float32)
    return scales


def _spread(y: F32, axis: int) -> F32:
    """Root mean square along an axis, 1 where it is 0."""
    square = np.square(y).mean(axis=axis, keepdims=True)
    out: F32 = np.sqrt(np.where(square > 0, square, np.float32(1)))
    return out
