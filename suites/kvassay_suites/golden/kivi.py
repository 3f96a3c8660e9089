"""Section 6 of the numeric contract: codes in groups of 32, with a minimum and a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .contract import F32, ZERO, Ints, f16s, rne

GROUP: Final = 32


@dataclass(frozen=True)
class Coded:
    """Codes (heads, tokens, d), and minima and steps as a page has them: keys (heads, groups, d),
    values (heads, groups, tokens)."""

    codes: Ints
    minima: NDArray[np.float16]
    steps: NDArray[np.float16]


def encode(r: F32, bits: int, axis: int) -> Coded:
    """Codes of r (heads, tokens, d): groups of tokens (axis 1: keys) or channels (2: values)."""
    most = np.float32(2**bits - 1)
    codes, minima, steps = [], [], []
    for first in range(0, r.shape[axis], GROUP):
        part = r.take(range(first, min(first + GROUP, r.shape[axis])), axis)
        low = f16s(part.min(axis) + ZERO)
        wide = low.astype(np.float32)
        spread = (part.max(axis) + ZERO) - wide
        step = f16s(np.where(spread < 0, ZERO, spread) / most)
        divisor = np.expand_dims(step.astype(np.float32), axis)
        with np.errstate(divide="ignore", invalid="ignore"):
            quotient = (part - np.expand_dims(wide, axis)) / divisor
        quotient = np.where(divisor == 0, ZERO, np.clip(quotient, -1, 2.0**20))
        codes.append(np.clip(rne(quotient.astype(np.float32)), 0, most).astype(np.int64))
        minima.append(low)
        steps.append(step)
    return Coded(np.concatenate(codes, axis), np.stack(minima, 1), np.stack(steps, 1))
