"""Input checks that every backend shares, so that the same mistake gets the same error
everywhere."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..errors import IdentityError, InputError, NonFiniteError, StateError, UnavailableError
from ..page.identity import first_difference
from ..protocol import Cache, FloatArray
from ..spec import MAX_TOKENS, Spec

FP16_MAX: Final = 65504.0
_BLOCK_TOKENS: Final = 64

#: The least float, 1, and a quarter and three quarters of the step behind 1.
_TINY: Final = 2.0**-1074
_ONE: Final = 1.0
_QUARTER_STEP: Final = 2.0**-54
_THREE_QUARTERS: Final = 3 * 2.0**-54


def check_spec(spec: Any) -> None:
    """InputError for anything but a Spec."""
    if not isinstance(spec, Spec):
        raise InputError(
            f"spec: expected a kvassay.Spec, got {_describe(spec)}; make one with kvassay.Spec or "
            f"kvassay.preset"
        )


def check_layer(spec: Spec, layer: Any) -> int:
    """The layer number, or InputError."""
    if isinstance(layer, bool) or not isinstance(layer, (int, np.integer)):
        raise InputError(f"layer: {layer!r} is not an integer")
    if not 0 <= layer < spec.layers:
        raise InputError(f"layer: {layer} is outside 0 .. {spec.layers - 1}")
    return int(layer)


def check_tokens(n: Any, length: int) -> int:
    """A length to truncate to, or InputError."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
        raise InputError(f"truncate: {n!r} is not an integer")
    if not 0 <= n <= length:
        raise InputError(f"truncate: {n} is outside 0 .. {length}, the tokens held by every layer")
    return int(n)


def check_append(spec: Spec, layer: int, k: Any, v: Any) -> tuple[FloatArray, FloatArray]:
    """k and v as C-contiguous float32 (tokens, kv_heads, head_dim), finite and within fp16.

    Strided or read-only arrays are fine and give the same result; another dtype or shape is
    refused.
    """
    shape = (spec.kv_heads, spec.head_dim)
    keys = _rows("append: k", k, shape)
    values = _rows("append: v", v, shape)
    if len(keys) != len(values):
        raise InputError(
            f"append: k has {len(keys)} tokens, v has {len(values)}; give as many values as keys"
        )
    _check_range("append: k", keys, layer)
    _check_range("append: v", values, layer)
    return keys, values


def check_room(layer: int, held: int, more: int) -> None:
    """InputError where a layer would hold more tokens than pages can number."""
    if more > MAX_TOKENS - held:
        raise InputError(
            f"append: layer {layer} holds {held} tokens; {more} more are beyond {MAX_TOKENS}, the "
            f"most that pages can number; reset, or truncate"
        )


def require_ieee() -> None:
    """Refuse to compute where the process flushes subnormals or does not round to nearest even.

    For backends whose arithmetic runs under what the host set; a few operations on floats of
    Python, which obey it too. Raises UnavailableError.
    """
    kept = _TINY * _ONE != 0.0
    nearest = _ONE + _QUARTER_STEP == _ONE and _ONE + _THREE_QUARTERS != _ONE
    if not (kept and nearest):
        raise UnavailableError(
            "this process flushes subnormal floats or does not round to nearest even (a library "
            "built with fast-math, or torch.set_flush_denormal, may have set it); the numeric "
            "contract needs both"
        )


def check_queries(spec: Spec, layer: int, q: Any, length: int, call: str = "attend") -> FloatArray:
    """q as C-contiguous float32 (n, query_heads, head_dim) with 1 <= n <= length.

    `call` is the operation that errors name.
    """
    shape = (spec.query_heads, spec.head_dim)
    if isinstance(q, np.ndarray) and q.shape == shape:
        q = q[np.newaxis]
    queries: FloatArray = _rows(f"{call}: q", q, shape, "queries")
    n = len(queries)
    if n == 0:
        raise InputError(f"{call}: q has no queries; give at least one")
    if length == 0:
        raise StateError(f"{call}: layer {layer} holds no tokens; append first")
    if n > length:
        raise StateError(
            f"{call}: {n} queries, but layer {layer} holds {length} tokens; give at most as many"
        )
    _check_range(f"{call}: q", queries, layer)
    return queries


def check_score_query(spec: Spec, layer: int, q: Any, length: int) -> FloatArray:
    """q of `scores`, C-contiguous float32 (query_heads, head_dim)."""
    shape = (spec.query_heads, spec.head_dim)
    if not isinstance(q, np.ndarray) or q.shape != shape:
        raise InputError(f"scores: q must be (query_heads, head_dim) = {shape}, not {_describe(q)}")
    query: FloatArray = check_queries(spec, layer, q, length, "scores")[0]
    return query


def check_count(what: str, value: Any) -> int:
    """A number of tokens or pages as a plain int."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise InputError(f"{what}: {value!r} is not a number of them; give 0 or more")
    return int(min(value, 2**32 - 1))


def check_limit(limit: Any) -> int | None:
    """The limit of a pool in bytes, or None."""
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, (int, np.integer)) or limit < 1:
        raise InputError(f"limit: {limit!r} is not a positive number of bytes")
    return int(min(limit, 2**63))


def check_donor(spec: Spec, donor: Any) -> None:
    """A donor of pages is a cache of an equal spec; IdentityError names the first other field."""
    if not isinstance(donor, Cache):
        raise InputError(f"adopt: the donor must be a cache, not {_describe(donor)}")
    difference = first_difference(spec.identity_text, donor.spec.identity_text)
    if difference is not None:
        field, own, other = difference
        raise IdentityError(
            f"adopt: {field} of the donor is {other}, this cache has {own}", field=field
        )


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    return type(value).__name__


def _rows(what: str, value: Any, shape: tuple[int, int], first: str = "tokens") -> FloatArray:
    if not isinstance(value, np.ndarray):
        raise InputError(f"{what}: expected a numpy array, got {_describe(value)}")
    if value.dtype != np.float32:
        raise InputError(
            f"{what}: dtype {value.dtype}; expected float32, convert with .astype(np.float32)"
        )
    if value.ndim != 3 or value.shape[1:] != shape:
        raise InputError(
            f"{what}: shape {value.shape}; expected ({first}, {shape[0]}, {shape[1]}), that is "
            f"({first}, heads, head_dim)"
        )
    return np.require(value, requirements=("C", "ALIGNED", "ENSUREARRAY"))


def _check_range(what: str, rows: FloatArray, layer: int) -> None:
    """Token by block of tokens: temporaries as large as a long prompt would count as its peak."""
    for start in range(0, len(rows), _BLOCK_TOKENS):
        block = rows[start : start + _BLOCK_TOKENS]
        good = np.abs(block) <= FP16_MAX
        if good.all():
            continue
        token, head, channel = (int(i) for i in np.argwhere(~good)[0])
        found = float(block[token, head, channel])
        token += start
        raise NonFiniteError(
            f"{what}: {found} at layer {layer}, token {token}, head {head}, channel {channel}; "
            f"values must be finite and at most {FP16_MAX:g} in magnitude",
            layer=layer,
            token=token,
            head=head,
            channel=channel,
        )


def check_threads(threads: Any) -> None:
    """InputError for what is no number of threads."""
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)):
        raise InputError(f"threads: {threads!r} is not an integer")
    if not 1 <= threads <= 0xFFFFFFFF:
        raise InputError(f"threads: {threads} is not a positive number of threads")
