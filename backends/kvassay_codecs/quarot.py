"""QuaRot: Ashkboos and others, arXiv 2404.00456, section 4.

Keys (after RoPE) and values go through a Hadamard transform of the head dim, then asymmetric
min-max rounding in groups of 128 channels with the range clipped to .95.
"""

from __future__ import annotations

from typing import Any

from . import minmax
from .base import F32, Codec, Held, Shape
from .rotations import KINDS, rotation

CLIP = 0.95
GROUP = 128


class QuaRot(Codec):
    """Codes, fp16 step and minimum of every 128 channels of the transformed vector.

    rotation: "hadamard" as published; where the head dim has no Hadamard matrix here, give another.
    clip: share of the range that is kept.
    """

    paper = "arXiv 2404.00456, section 4"
    granularity = "128 channels"
    claim = "4 bits everywhere: at most .47 perplexity lost on LLaMA2-70B"
    rates = (4.0, 2.0, 3.0, 8.0)

    def __init__(self, *, rotation: str = "hadamard", clip: float = CLIP, **common: Any) -> None:
        super().__init__(**common)
        self.rotation = self._choice("rotation", rotation, KINDS)
        self._matrix()  # a head dim that this rotation does not have is refused now
        if not 0.5 <= clip <= 1:
            raise self._refuse(f"clip {clip!r} is outside 0.5 .. 1")
        self.clip = clip

    def _matrix(self) -> F32:
        return rotation(self.rotation, self.head_dim, self.seed)

    def _pack(self, x: F32) -> Held:
        return minmax.encode_tokens(x @ self._matrix().T, int(self.bits), GROUP, self.clip)

    def _unpack(self, held: Held, shape: Shape) -> F32:
        x: F32 = minmax.decode_tokens(held, int(self.bits), GROUP, shape) @ self._matrix()
        return x
