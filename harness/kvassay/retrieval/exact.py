"""Sums in float64 with a fixed order: the same bits on every machine and for every batch.

numpy promises no order of summation for products of matrices, and float32 results would then differ
between one query and many.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

_STRIPES = 16


def dots(a: NDArray[Any], b: NDArray[Any]) -> F64:
    """Inner products over the last axis; other axes broadcast.

    Sixteen sums, channel c to sum c mod 16, in order; then sum i + sum i+8, i+4, i+2, i+1.
    """
    shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    sums = np.zeros((*shape, _STRIPES))
    for c in range(0, a.shape[-1], _STRIPES):
        part = slice(c, c + _STRIPES)
        terms = a[..., part].astype(np.float64) * b[..., part].astype(np.float64)
        sums[..., : terms.shape[-1]] += terms
    for half in (8, 4, 2, 1):
        sums = sums[..., :half] + sums[..., half : 2 * half]
    return sums[..., 0]


def norms(x: NDArray[Any]) -> F64:
    """Euclidean norms of the rows of x."""
    root: F64 = np.sqrt(dots(x, x))
    return root


def unit_rows(x: F32) -> F32:
    """Rows of norm 1, each component rounded once; rows of zeros as they are."""
    size = norms(x)[:, np.newaxis]
    return (x / np.where(size == 0, 1.0, size)).astype(np.float32)
