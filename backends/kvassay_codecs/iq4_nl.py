"""iq4_nl of llama.cpp: 16 fixed non-uniform levels, a step fitted to the block (ggml-quants.c).

`quantize_row_iq4_nl_ref` is the search with `ntry = -1`: codes are taken once, with the number of
largest magnitude on the lowest level, and then the step of least squared error weighted by x^2.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from .base import F32, U8
from .llama_cpp import Blocks, as_bytes, as_floats, bit_planes, from_bit_planes

#: kvalues_iq4nl of ggml-common.h.
LEVELS: Final = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
_SMALLEST: Final = 1e-15  # GROUP_MAX_EPS


class IQ4NL(Blocks):
    """fp16 step, 4-bit indices of 16 levels: 4.5 bits."""

    rates = (4.0,)
    block_bytes = 18

    def _blocks(self, x: F32) -> U8:
        extreme = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, np.newaxis], axis=1)
        zero = np.abs(extreme) < np.float32(_SMALLEST)
        safe = np.where(zero, np.float32(1), extreme)
        codes = _nearest(x * (np.float32(1) / (safe / LEVELS[0])))
        level = LEVELS[codes]
        weighted = x * x * level
        # Sums in channel order, as the reference adds them.
        dot, energy = np.zeros_like(zero, np.float32), np.zeros_like(zero, np.float32)
        for channel in range(x.shape[1]):
            one = slice(channel, channel + 1)
            dot += weighted[:, one] * x[:, one]
            energy += weighted[:, one] * level[:, one]
        step = np.where(zero, np.float32(0), dot / np.where(zero, np.float32(1), energy))
        codes = np.where(zero, np.uint8(0), codes)
        return np.concatenate([as_bytes(step), *bit_planes(codes, 4)], axis=1)

    def _numbers(self, blocks: U8) -> F32:
        return LEVELS[from_bit_planes(blocks[:, 2:], 4)] * as_floats(blocks[:, :2])


def _nearest(x: F32) -> U8:
    """Index of the nearest level; the upper one of two equally near."""
    above = np.clip(np.searchsorted(LEVELS, x, side="right"), 1, len(LEVELS) - 1)
    lower = x - LEVELS[above - 1] < LEVELS[above] - x
    return (above - lower).astype(np.uint8)
