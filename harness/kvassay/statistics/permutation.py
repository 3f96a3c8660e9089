"""Permutation tests of paired items: no assumption about the shape of a distribution."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Doubles = NDArray[np.float64]
_RESAMPLES: Final = 9_999


def paired_p_value(differences: Doubles, resamples: int = _RESAMPLES) -> float:
    """One-sided p-value against: the differences, one an item, are not above zero on average.

    If that holds, a difference is as likely to be positive as negative, so signs are flipped at
    random (Fisher 1935, section 21). The least p-value is 1 / (resamples + 1); the seed is fixed.
    nan for no items.
    """
    if not len(differences):
        return math.nan
    found = stats.permutation_test(
        (differences,),
        _mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        alternative="greater",
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


def _mean(values: Doubles, axis: int) -> Any:
    return values.mean(axis=axis)
