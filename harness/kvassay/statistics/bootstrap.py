"""Confidence intervals by resampling items, pairs kept together (Efron and Tibshirani 1993).

Percentile intervals, seeds fixed, so an interval is a function of the data. Fewer than two items
and values that are not finite have no interval: nan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Doubles = NDArray[np.float64]
_RESAMPLES: Final = 10_000
_CONFIDENCE: Final = 0.95


def mean_interval(values: Doubles, confidence: float = _CONFIDENCE) -> tuple[float, float]:
    """Two-sided interval of the mean of one value an item, (items,)."""
    return _interval((values,), _mean, confidence, "two-sided")


def ratio_interval(
    reference: Doubles, found: Doubles, confidence: float = _CONFIDENCE
) -> tuple[float, float]:
    """Two-sided interval of (sum of found) / (sum of reference) - 1, one total an item."""
    return _interval((reference, found), _rise, confidence, "two-sided")


def ratio_upper_bound(
    reference: Doubles,
    found: Doubles,
    confidence: float = _CONFIDENCE,
    resamples: int = _RESAMPLES,
) -> float:
    """One-sided upper bound of the same rise: what a budget is compared with."""
    return _interval((reference, found), _rise, confidence, "less", resamples)[1]


def _interval(
    data: tuple[Doubles, ...],
    statistic: Callable[..., Any],
    confidence: float,
    side: Literal["two-sided", "less"],
    resamples: int = _RESAMPLES,
) -> tuple[float, float]:
    if len(data[0]) < 2 or not all(np.isfinite(values).all() for values in data):
        return math.nan, math.nan
    found = stats.bootstrap(
        data,
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=resamples,
        confidence_level=confidence,
        alternative=side,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(found.low), float(found.high)


def _mean(values: Doubles, axis: int) -> Any:
    return values.mean(axis=axis)


def _rise(reference: Doubles, found: Doubles, axis: int) -> Any:
    return found.sum(axis=axis) / reference.sum(axis=axis) - 1.0
