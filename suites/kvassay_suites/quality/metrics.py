"""Distances between what full precision computes and what a cache computes, in float64.

Every function states what it makes of empty input, so that nothing measured is never a zero.
Distributions are given as logarithms of probabilities along the last axis; -inf is probability 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Numbers = NDArray[np.floating[Any]]


def kl_divergence(log_p: Doubles, log_q: Doubles) -> Doubles:
    """KL(p || q) in nats along the last axis (Kullback and Leibler 1951); inf where q misses p.

    Outcomes with p = 0 count 0. Rounding below zero is cut off: a divergence is not negative.
    """
    p = np.exp(log_p)
    with np.errstate(invalid="ignore"):
        terms = np.where(p > 0, p * (log_p - log_q), 0.0)
    total: Doubles = np.maximum(terms.sum(axis=-1), 0.0)
    return total


def js_divergence(log_p: Doubles, log_q: Doubles) -> Doubles:
    """Jensen-Shannon divergence in nats along the last axis (Lin 1991), from 0 to ln 2."""
    log_middle = np.logaddexp(log_p, log_q) - math.log(2.0)
    half_sum: Doubles = 0.5 * (kl_divergence(log_p, log_middle) + kl_divergence(log_q, log_middle))
    return half_sum


def same_top1(a: Numbers, b: Numbers) -> NDArray[np.bool_]:
    """Whether the largest entries along the last axis are at the same place; ties: the first."""
    agree: NDArray[np.bool_] = a.argmax(axis=-1) == b.argmax(axis=-1)
    return agree


def topk_overlap(a: Numbers, b: Numbers, k: int) -> Doubles:
    """Share of the k largest entries of each row of `a` that are among those of `b`, (rows,)."""
    mine = np.argpartition(a, -k, axis=-1)[:, -k:]
    theirs = np.argpartition(b, -k, axis=-1)[:, -k:]
    shared = (mine[:, :, np.newaxis] == theirs[:, np.newaxis, :]).any(axis=-1)
    share: Doubles = shared.mean(axis=-1)
    return share


def relative_rms(found: Numbers, exact: Numbers) -> float:
    """|found - exact| / |exact| over all entries; nan for no entries or an all-zero `exact`."""
    exact64 = exact.astype(np.float64)
    energy = float(np.square(exact64).sum())
    error = float(np.square(found.astype(np.float64) - exact64).sum())
    return math.sqrt(error / energy) if energy > 0 else math.nan


def cosine(a: Numbers, b: Numbers) -> Doubles:
    """Cosine along the last axis; nan where one of the vectors is zero."""
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    lengths = np.sqrt(np.square(a64).sum(axis=-1) * np.square(b64).sum(axis=-1))
    with np.errstate(invalid="ignore"):
        ratio: Doubles = (a64 * b64).sum(axis=-1) / lengths
    return ratio


def mean(values: Numbers | NDArray[np.bool_]) -> float:
    """The mean, nan for no values."""
    return float(values.mean()) if values.size else math.nan


def median(values: Numbers) -> float:
    """The median, nan for no values."""
    return float(np.median(values)) if values.size else math.nan


def spread(values: Numbers) -> dict[str, float]:
    """Mean, median, 90th and 99th percentile and maximum; nan for no values."""
    if not values.size:
        return dict.fromkeys(("mean", "median", "p90", "p99", "max"), math.nan)
    # Order statistics, not interpolated: an infinite divergence must not turn its neighbour nan.
    p90, p99 = np.quantile(values, (0.9, 0.99), method="higher")
    return {
        "mean": mean(values),
        "median": median(values),
        "p90": float(p90),
        "p99": float(p99),
        "max": float(values.max()),
    }


def relative_rise(reference: Doubles, found: Doubles) -> float:
    """(sum of found) / (sum of reference) - 1, nan for a zero or empty reference."""
    total = float(reference.sum())
    return float(found.sum()) / total - 1.0 if total > 0 else math.nan
