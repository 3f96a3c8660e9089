"""Queries as integers (section 7)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvassay.spec import LayerSpec

from .arithmetic import F32, LOG2E, PI, const, rne, single
from .transform import KEYS, SIGNS, Transform, read_gain

TURBO_BOUND: Final = 127
KIVI_BOUND: Final = 16256
_SMALLEST: Final = np.float32(2.0**-64)


@dataclass(frozen=True)
class IntegerVector:
    """`qi` (..., d), whole numbers, and `qs` (...): the vector is about qi * qs."""

    qi: F32
    qs: F32


@dataclass(frozen=True)
class Query:
    """Queries in units of log 2, (heads, rows, d): rows are the queries of a KV head's group,
    query by query."""

    log2: F32
    rotated: IntegerVector | None
    projected: IntegerVector | None


def integer_vector(z: F32, bound: int) -> IntegerVector:
    """z (..., d) scaled so that its largest magnitude is `bound`, rounded."""
    a = np.abs(z).max(axis=-1)
    divisor = np.where(a == 0, np.float32(1), a)
    factor = single(np.float32(bound) / divisor)
    return IntegerVector(rne(single(z * factor[..., np.newaxis])), single(a * const(1 / bound)))


def prepare_query(spec: LayerSpec, transforms: dict[int, Transform], q: F32) -> Query:
    """Everything about q (n, query_heads, d) that does not depend on the stored tokens."""
    n, _, d = q.shape
    ql = single(q * const(LOG2E * spec.softmax_scale))
    ql = np.where(np.abs(ql) < _SMALLEST, np.float32(0), ql)
    grouped = ql.reshape(n, spec.kv_heads, spec.group, d).swapaxes(0, 1)
    rows = np.ascontiguousarray(grouped).reshape(spec.kv_heads, n * spec.group, d)
    if not spec.keys.rotated:
        return Query(rows, None, None)
    z = transforms[KEYS].forward(rows)
    rotated = integer_vector(z, TURBO_BOUND)
    rotated = IntegerVector(rotated.qi, single(rotated.qs * read_gain(transforms[KEYS].exponent)))
    if not spec.keys.qjl:
        return Query(rows, rotated, None)
    return Query(rows, rotated, integer_vector(transforms[SIGNS].forward(z), TURBO_BOUND))


def projection_constant(d: int, exponent: int) -> np.float32:
    """K: the sign estimator's sqrt(pi/2 / d) with the gains of two transforms taken out."""
    odd = exponent % 2
    x = PI / 2 / d * (2 if odd else 1)
    y = (exponent + 1) // 2 - (3 * exponent + odd) // 2
    return const(math.sqrt(x) * 2.0**y)
