"""Confidence intervals of means: of few items, and along one text, where neighbours depend."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from .metrics import Doubles

#: Positions a block: what one place of a text says about the next fades over a sentence or two.
BLOCK: Final = 32
_RESAMPLES: Final = 2000
_CONFIDENCE: Final = 0.95


def block_interval(values: Doubles, block: int = BLOCK) -> list[float]:
    """Both ends of the 95 % interval of the mean, by the circular block bootstrap.

    values: one a position, in order. Blocks begin anywhere and wrap around (Politis and Romano
    1992); percentiles; the seed is fixed, so the interval is a function of the values. nan for
    fewer than two blocks.
    """
    n = len(values)
    if n < 2 * block:
        return [math.nan, math.nan]
    running = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[:block]]))])
    totals = running[block : block + n] - running[:n]
    drawn = np.random.default_rng(0).integers(n, size=(_RESAMPLES, max(2, n // block)))
    means = totals[drawn].mean(axis=1) / block
    tail = (1 - _CONFIDENCE) / 2
    return [float(end) for end in np.quantile(means, (tail, 1 - tail))]


def mean_interval(values: Doubles) -> list[float]:
    """Both ends of the 95 % interval of the mean of independent values, by the bootstrap.

    Percentiles (Efron and Tibshirani 1993), fixed seed; nan for fewer than two values.
    """
    n = len(values)
    if n < 2:
        return [math.nan, math.nan]
    means = values[np.random.default_rng(0).integers(n, size=(_RESAMPLES, n))].mean(axis=1)
    tail = (1 - _CONFIDENCE) / 2
    return [float(end) for end in np.quantile(means, (tail, 1 - tail))]
