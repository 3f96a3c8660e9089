"""PolarQuant: Han, Kacham, Karbasi, Mirrokni, Zandieh, arXiv 2502.02617.

After a random rotation every 16 channels become one radius and 15 angles (Definition 1): pairs of
channels give angles on [0, 2 pi), pairs of radii give angles on [0, pi/2], four levels deep. Level
l has density sin^(2^(l-1)-1)(2 psi) (Lemma 2), so that fixed codebooks do: 4 bits for level 1, 2
bits for the others, and an fp16 radius, 62 bits for 16 channels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from . import codebooks
from .base import F32, F64, Codec, Held, Shape, f16, f32
from .packing import pack, unpack
from .rotations import KINDS, rotation

BLOCK: Final = 16
_LEVELS: Final = 4
_FIRST_BITS: Final = 4
_BITS: Final = 2


class PolarQuant(Codec):
    """An fp16 radius, eight 4-bit and seven 2-bit angles for every 16 rotated channels.

    rotation: as `rotations.KINDS` lists them.
    """

    paper = "arXiv 2502.02617, Algorithm 1"
    granularity = "16 channels"
    claim = "over 4.2 times less memory"
    rates = (3.875,)

    def __init__(self, *, rotation: str = "dense", **common: Any) -> None:
        super().__init__(**common)
        self.rotation = self._choice("rotation", rotation, KINDS)

    def _matrix(self) -> F32:
        return rotation(self.rotation, self.head_dim, self.seed)

    def _pack(self, x: F32) -> Held:
        y = (x @ self._matrix().T).reshape(*x.shape[:2], -1, BLOCK)
        a, b = y[..., 0::2], y[..., 1::2]
        step = 2 * np.pi / (1 << _FIRST_BITS)
        turns = np.floor(np.mod(np.arctan2(b, a), 2 * np.pi) / step)
        first = np.minimum(turns, (1 << _FIRST_BITS) - 1).astype(np.uint8)
        radii, later = np.hypot(a, b), []
        for level in range(2, _LEVELS + 1):
            a, b = radii[..., 0::2], radii[..., 1::2]
            later.append(codebooks.nearest(np.arctan2(b, a), angles(level)))
            radii = np.hypot(a, b)
        flat = (*x.shape[:2], -1)
        return {
            "angles level 1": pack(first.reshape(flat), _FIRST_BITS),
            "angles levels 2 to 4": pack(np.concatenate(later, axis=-1).reshape(flat), _BITS),
            "radii": f16("a block's radius", radii[..., 0]),
        }

    def _unpack(self, held: Held, shape: Shape) -> F32:
        blocks = self.head_dim // BLOCK
        later = unpack(held["angles levels 2 to 4"], _BITS, 7 * blocks)
        later = later.reshape(*shape[:2], blocks, 7)
        first = unpack(held["angles level 1"], _FIRST_BITS, 8 * blocks)
        radii = f32(held["radii"])[..., np.newaxis]
        for level, at in ((4, slice(6, 7)), (3, slice(4, 6)), (2, slice(0, 4))):
            radii = _split(radii, angles(level)[later[..., at]])
        middle = (first.reshape(*shape[:2], blocks, 8) + 0.5) * (2 * np.pi / (1 << _FIRST_BITS))
        out: F32 = _split(radii, middle).reshape(shape) @ self._matrix()
        return out


@lru_cache
def angles(level: int) -> F64:
    """The four centroids of level 2, 3 or 4, increasing."""
    power = 2 ** (level - 1) - 1
    return codebooks.on_grid(lambda psi: np.sin(2 * psi) ** power, 0.0, np.pi / 2, _BITS)


def _split(radii: F32, angle: Any) -> F32:
    """Radii (..., n) and their angles as the 2 n numbers one level down."""
    pairs = np.stack([radii * np.cos(angle), radii * np.sin(angle)], axis=-1)
    return pairs.reshape(*radii.shape[:-1], -1).astype(np.float32)
