"""KIVI: Liu and others, arXiv 2402.02750, Algorithm 1.

Asymmetric min-max rounding, fp16 step and minimum: keys per channel in groups of 32 tokens, values
per token in groups of 32 channels. A group of keys exists once its 32 tokens do; until then they
are fp16. With `residual` R the newest tokens stay fp16 as published: len mod R of the keys, flushed
as a block, and exactly the last R of the values.
"""

from __future__ import annotations

from typing import Any

from kvassay.vector_codec import RESIDUAL

from . import minmax
from .base import F32, Codec, Held, Shape, f32, residual, with_residual


class KIVI(Codec):
    """Codes, fp16 step and minimum of every 32 numbers; newest tokens as fp16.

    group: numbers a step is for. residual: 0, or the published 32 or 128; a multiple of the group.
    """

    paper = "arXiv 2402.02750, Algorithm 1"
    granularity = "32 tokens a channel (keys), 32 channels a token (values)"
    claim = "2 bits with almost the same quality, 2.6 times less peak memory with the weights"
    rates = (2.0, 3.0, 4.0, 8.0)

    def __init__(self, *, group: int = 32, residual: int = 0, **common: Any) -> None:
        super().__init__(**common)
        self.group = self._integer("group", group, 8, 1024)
        self.residual = self._integer("residual", residual, 0, 1 << 20)
        if self.residual % self.group:
            raise self._refuse(f"residual {residual} is no multiple of the group of {group}")

    def _sealed(self, tokens: int) -> int:
        """How many of the oldest tokens are codes."""
        if self.role == "value":
            return max(0, tokens - self.residual)
        return tokens - tokens % (self.residual or self.group)

    def _pack(self, x: F32) -> Held:
        at = self._sealed(x.shape[1])
        return {**self._pack_groups(x[:, :at]), **residual(x[:, at:])} if at else residual(x)

    def _pack_groups(self, x: F32) -> Held:
        if self.role == "value":
            return minmax.encode_tokens(x, int(self.bits), self.group)
        columns = x.swapaxes(1, 2).reshape(len(x), self.head_dim, -1, self.group)
        return minmax.encode(columns, int(self.bits))

    def _unpack(self, held: Held, shape: Shape) -> F32:
        heads, tokens, d = shape
        at = self._sealed(tokens)
        if not at:
            return f32(held[RESIDUAL])
        if self.role == "value":
            sealed = minmax.decode_tokens(held, int(self.bits), self.group, (heads, at, d))
        else:
            columns = minmax.decode(held, int(self.bits), self.group)
            sealed = columns.reshape(heads, d, at).swapaxes(1, 2)
        return with_residual(sealed, held)
