"""Stored scales of turbo: one number a vector, as a byte of its page's maximum or as fp16
(section 5, step 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arithmetic import F32, const, f16s, f32, rne, single
from .codebook import FULL, HALF


@dataclass(frozen=True)
class Scales:
    """Scales as a page holds them: `stored` (..., heads, tokens) and, except for fp16, `maxima`
    (..., heads)."""

    kind: str
    stored: NDArray[Any]
    maxima: F32 | None

    @property
    def factor(self) -> F32:
        """`su`, (..., heads, tokens): what a reader multiplies token by token."""
        if self.kind == "u8log":
            return single(_LOG_VALUES[self.stored])
        return f32(self.stored)

    @property
    def unit(self) -> F32:
        """`unit`, (..., heads): what a reader multiplies once a head. The scale is `factor *
        unit`."""
        if self.maxima is None:
            return np.ones(self.stored.shape[:-1], np.float32)
        if self.kind == "u8log":
            return self.maxima
        return single(self.maxima * const(1 / 255))


def store_scales(kind: str, s: F32) -> Scales:
    """Scales s (heads, tokens), none negative, in the form of `kind`."""
    if kind == "fp16":
        return Scales(kind, f16s(s), None)
    maxima = s.max(axis=-1)
    present = (maxima > 0)[:, np.newaxis]
    largest = np.where(present, maxima[:, np.newaxis], np.float32(1))
    if kind == "u8":
        stored = rne(single(s * single(np.float32(255) / largest)))
    else:
        ratio = single(s / largest)
        stored = (ratio[..., np.newaxis] >= _LOG_THRESHOLDS).sum(axis=-1)
    return Scales(kind, np.where(present, stored, 0).astype(np.uint8), maxima)


def _powers(table: F32, code: int) -> np.float32:
    """Entry k = 255 - code of a table of 16 that continues at half size."""
    k = 255 - code
    return np.float32(table[k % 16] * np.float32(2.0 ** -(k // 16)))


#: TL[1..255], and what each stored byte stands for.
_LOG_THRESHOLDS = np.array([_powers(HALF, i) for i in range(1, 256)], np.float32)
_LOG_VALUES = np.array([0] + [_powers(FULL, u) for u in range(1, 256)], np.float32)
