"""Checks of what callers give to an index: the same mistake gets the same error everywhere."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .code import LARGEST, LARGEST_ID, LARGEST_SCALE, MAX_DIM, SMALLEST
from .protocol import F32, U8, Rows

_FLOAT32: Final = np.dtype(np.float32)
#: Bounds of a square, halved and doubled since it is rounded.
_LEAST_SQUARE: Final = 2 * MAX_DIM * SMALLEST**2
_LARGEST_SQUARE: Final = LARGEST**2 / 2


def check_vectors(what: str, x: Any, dim: int) -> F32:
    """x as C-contiguous float32 (n, dim), every component finite, every row 0 or with its largest
    magnitude within 2^-40 .. 2^40. Raises InputError naming row and channel."""
    if not isinstance(x, np.ndarray) or x.dtype != _FLOAT32:
        found = f"{x.dtype} array" if isinstance(x, np.ndarray) else type(x).__name__
        raise InputError(f"{what}: {found}; give a float32 array, convert with .astype(np.float32)")
    if x.ndim != 2 or x.shape[1] != dim:
        raise InputError(f"{what}: shape {x.shape}; this index takes (n, {dim})")
    rows: F32 = x
    if type(x) is not np.ndarray or not ((flags := x.flags).c_contiguous and flags.aligned):
        rows = np.require(x, requirements=("C", "ALIGNED", "ENSUREARRAY"))
    if len(rows) == 1 and _surely_good(rows[0]):
        return rows
    if rows.size:
        _check_range(what, rows)
    return rows


def _surely_good(row: F32) -> bool:
    """Whether the square says already that a row is within its range: a single query is answered
    within microseconds, and this is one pass. NaN says no."""
    return _LEAST_SQUARE <= float(row.dot(row)) <= _LARGEST_SQUARE


def _check_range(what: str, rows: F32) -> None:
    high, low = rows.max(axis=1), rows.min(axis=1)
    size = np.maximum(high, -low)  # NaN if any is
    good = (size == 0) | ((size >= np.float32(SMALLEST)) & (size <= np.float32(LARGEST)))
    if good.all():
        return
    row = int(np.argmin(good))
    finite = np.isfinite(rows[row])
    channel = int(np.argmin(finite)) if not finite.all() else int(np.argmax(np.abs(rows[row])))
    raise InputError(
        f"{what}: {rows[row, channel]!s} at row {row}, channel {channel}; components must be "
        f"finite, and the largest magnitude of a row 0 or within {SMALLEST:.3g} .. {LARGEST:.3g}: "
        f"scale the data"
    )


def check_ids(what: str, ids: Any, count: int | None = None) -> Rows:
    """ids as int64 (n,), none twice, none negative; `count` is what n must be."""
    found = np.asarray(ids)
    if found.size == 0:
        found = found.astype(np.int64).reshape(-1)
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        raise InputError(f"{what}: give a list of whole numbers, not {found.dtype} {found.shape}")
    if count is not None and len(found) != count:
        raise InputError(f"{what}: {len(found)} ids for {count} vectors; give one each")
    if len(found) and (int(found.min()) < 0 or int(found.max()) > LARGEST_ID):
        raise InputError(f"{what}: ids must be within 0 .. 2^62 - 1")
    rows: Rows = found.astype(np.int64)
    unique, counts = np.unique(rows, return_counts=True)
    if (counts > 1).any():
        raise InputError(f"{what}: id {unique[counts > 1][0]} occurs more than once")
    return rows


def bad_scales(scales: F32) -> NDArray[np.bool_]:
    """Which scales (n,) no vector has: negative (-0 too), no number, or too large for a score."""
    return np.signbit(scales) | ~(scales <= np.float32(LARGEST_SCALE))


def check_mask(mask: Any, count: int) -> U8 | None:
    """A mask as uint8 (count,), None as it is."""
    if mask is None:
        return None
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (count,):
        found = f"{mask.dtype} {mask.shape}" if isinstance(mask, np.ndarray) else type(mask)
        raise InputError(
            f"search: mask is {found}; give a bool array ({count},), one entry for each of "
            f"index.ids, true where a vector may be found"
        )
    bits: NDArray[np.uint8] = np.ascontiguousarray(mask).view(np.uint8)
    return bits


def check_number(what: str, value: Any, least: int) -> int:
    """A whole number of at least `least`."""
    if type(value) is int and value >= least:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"{what}: {value!r} is not a whole number of at least {least}")
    return int(value)
