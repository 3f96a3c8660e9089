"""Whether a peer computed the right thing."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .protocol import Best, NotMeasured, Result, Sum


def error_of(result: Result, expected: NDArray[np.float64]) -> float:
    """How far a result is from float64; NaN or infinity if it is no such result at all.

    Arrays: RMS of the difference over RMS of what was expected. A search's best: the larger of that
    figure for its scores, and of the share by which the true scores of what it found fall short of
    the true best. Sums: equal or not.
    """
    if isinstance(result, Sum):
        return 0.0 if result.found == result.expected else math.inf
    if isinstance(result, Best):
        return _search_error(result, expected.ravel())
    if result.shape != expected.shape:
        return math.inf
    return _relative(result, expected)


def require_right(result: Result, expected: NDArray[np.float64], tolerance: float) -> float:
    """The error of a result; NotMeasured if it is beyond the tolerance."""
    error = error_of(result, expected)
    if not error <= tolerance:
        raise NotMeasured(f"wrong result: error {error:.3g} against float64, {tolerance:g} allowed")
    return error


def _relative(found: NDArray[np.float32], expected: NDArray[np.float64]) -> float:
    difference = found.astype(np.float64) - expected
    return float(np.sqrt(np.mean(difference**2) / np.mean(expected**2)))


def _search_error(best: Best, scores: NDArray[np.float64]) -> float:
    ids = best.ids.ravel()
    if len(set(ids.tolist())) != len(ids) or not len(ids):
        return math.inf
    if ids.min() < 0 or ids.max() >= len(scores):
        return math.inf
    top = np.partition(scores, -len(ids))[-len(ids) :]
    shortfall = 1 - scores[ids].mean() / top.mean()
    return max(_relative(best.scores.ravel(), scores[ids]), float(shortfall))
