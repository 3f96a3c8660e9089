"""FlexGen: Sheng and others, arXiv 2303.06865, section 5.

Group-wise asymmetric min-max rounding to 4 bits, groups of 64 along the head dim, fp16 step and
minimum. The dimension is padded to whole groups, and the padding is stored: 80 channels cost 128.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import minmax
from .base import F32, Codec, Held, Shape


class FlexGen(Codec):
    """Codes of whole groups of 64 channels, fp16 step and minimum a group.

    group: channels that share a step.
    """

    paper = "arXiv 2303.06865, section 5"
    granularity = "64 channels"
    claim = "4 bits with negligible loss of accuracy"
    rates = (4.0, 2.0, 3.0, 8.0)

    def __init__(self, *, group: int = 64, **common: Any) -> None:
        super().__init__(**common)
        self.group = self._integer("group", group, 8, 256)

    def _pack(self, x: F32) -> Held:
        padding = -self.head_dim % self.group
        # Zeros, as published: they widen the range of the last group, which is part of its cost.
        padded = np.pad(x, ((0, 0), (0, 0), (0, padding)))
        return minmax.encode(padded.reshape(*x.shape[:2], -1, self.group), int(self.bits))

    def _unpack(self, held: Held, shape: Shape) -> F32:
        groups = minmax.decode(held, int(self.bits), self.group)
        out: F32 = groups.reshape(*shape[:2], -1)[..., : self.head_dim]
        return out
