"""The operations of the numeric contract: binary32, one rounding each, sums in their written order.

Sections 0 and 10 of docs/numeric-contract.md. Numpy rounds every elementwise float32 operation to
nearest even and never contracts two of them; what it does not promise is the order of `sum` and of
products of matrices, so neither is used on floats here. Matrices of integers are multiplied in
float64, which is exact below 2^53.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F16 = NDArray[np.float16]
I32 = NDArray[np.int32]

LOG2E: Final = float.fromhex("0x1.71547652b82fep+0")
LN2: Final = float.fromhex("0x1.62e42fefa39efp-1")
PI: Final = float.fromhex("0x1.921fb54442d18p+1")
F16_MAX: Final = np.float32(65504)

_ROUNDER: Final = np.float32(12582912)
#: Sixteen times the bytes of sums that are added to at once: what a core's own cache holds.
_AT_ONCE: Final = 1 << 23
_EX2: Final = tuple(
    np.float32(float.fromhex(text))
    for text in (
        *("0x1p+0", "0x1.62e42ap-1", "0x1.ebf9bcp-3"),
        *("0x1.c6b752p-5", "0x1.3cea88p-7", "0x1.5bba14p-10"),
    )
)


def const(value: float) -> np.float32:
    """`const(expr)`: binary64, rounded once."""
    return np.float32(value)


def f32(x: NDArray[np.generic]) -> F32:
    """An f16 (exact) or an integer (to nearest even) as float32."""
    return x.astype(np.float32)


def f16(x: F32) -> F16:
    """Round to binary16, to nearest even, subnormals kept; for |x| < 65520."""
    return x.astype(np.float16)


def f16s(x: F32) -> F16:
    """`f16` that saturates: the largest finite number, with the sign of x, where f16 would
    overflow."""
    return np.clip(x, -F16_MAX, F16_MAX).astype(np.float16)


def rne(x: F32) -> F32:
    """Round to nearest even to an integer, |x| < 2^22."""
    return single(single(x + _ROUNDER) - _ROUNDER)


def single(x: NDArray[np.generic]) -> F32:
    """x itself, which must be float32: a promotion to float64 would round once instead of twice."""
    assert x.dtype == np.float32, x.dtype
    return x  # type: ignore[return-value]


def d16(a: F32, b: F32) -> F32:
    """`D16` over the last axis, a multiple of 16; other axes broadcast."""
    axes = max(a.ndim, b.ndim)
    a, b = _channels_first(a, axes), _channels_first(b, axes)
    sums = np.zeros((16, *np.broadcast_shapes(a.shape[1:], b.shape[1:])), np.float32)
    step = next(n for n in (16, 8, 4, 2, 1) if n == 1 or sums.nbytes * n <= _AT_ONCE)
    for lane in range(0, 16, step):
        for c in range(lane, len(a), 16):
            sums[lane : lane + step] += single(a[c : c + step] * b[c : c + step])
    return _fold16(sums)


def s16(terms: F32) -> F32:
    """`S16` over the last axis, of any length (a missing term is a +0, which changes no sum)."""
    terms = _channels_first(terms, terms.ndim)
    sums = np.zeros((16, *terms.shape[1:]), np.float32)
    for c in range(0, len(terms), 16):
        part = terms[c : c + 16]
        sums[: len(part)] += part
    return _fold16(sums)


def _channels_first(x: F32, axes: int) -> F32:
    """x as an array of so many axes, the last of them first: the sums of one lane are independent,
    and numpy is fast along a last axis of those."""
    x = x[(np.newaxis,) * (axes - x.ndim)]
    return np.ascontiguousarray(x.transpose(-1, *range(axes - 1)))


def _fold16(sums: F32) -> F32:
    for half in (8, 4, 2, 1):
        sums = single(sums[:half] + sums[half : 2 * half])
    total: F32 = sums[0]
    return total


def ordered_sum(weights: F32, rows: F32) -> F32:
    """Sum over tokens, in token order, of weights (..., r, tokens) * rows (..., tokens, d):
    (..., r, d)."""
    lead = np.broadcast_shapes(weights.shape[:-2], rows.shape[:-2])
    total = np.zeros((*lead, weights.shape[-2], rows.shape[-1]), np.float32)
    for token in range(weights.shape[-1]):
        total += single(weights[..., token, np.newaxis] * rows[..., np.newaxis, token, :])
    return total


def integer_dot(a: NDArray[np.generic], b: NDArray[np.generic]) -> I32:
    """Exact products of integer matrices (..., r, n) and (..., n, c) whose sums fit int32."""
    product: I32 = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int32)
    return product


def ex2(x: F32) -> F32:
    """2^x for x <= 0 (section 10)."""
    near = np.maximum(x, np.float32(-64))
    w = single(near + _ROUNDER)
    r = single(near - single(w - _ROUNDER))
    p = np.full_like(r, _EX2[5])
    for coefficient in _EX2[4::-1]:
        p = single(single(p * r) + coefficient)
    bits = p.view(np.uint32) + (w.view(np.uint32) << np.uint32(23))
    return np.where(x < np.float32(-64), np.float32(0), bits.view(np.float32))
