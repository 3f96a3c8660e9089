"""Reads stored keys and values back through attention alone, whatever the backend is made of."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import kvassay
from kvassay.protocol import Backend, FloatArray

from ..common.specs import make_spec

KV_HEADS: Final = 2
GROUP: Final = 16
PAGE: Final = 64


def plain_spec(d: int, keys: str = "fp16", values: str = "fp16", **fields: Any) -> kvassay.Spec:
    """No sinks, no centring, softmax scale 1; many query heads, so that a call reads much."""
    return make_spec(
        kv_heads=KV_HEADS,
        query_heads=KV_HEADS * GROUP,
        head_dim=d,
        keys=keys,
        values=values,
        page_tokens=PAGE,
        softmax_scale=1.0,
        **fields,
    )


def read_keys(
    backend: Backend, spec: kvassay.Spec, k: FloatArray, v: FloatArray
) -> NDArray[np.float64]:
    """Keys as `scores` sees them, (tokens, kv_heads, d): one basis vector a query head."""
    tokens, heads, d = k.shape
    out = np.zeros(k.shape)
    basis = np.eye(d, dtype=np.float32)
    with backend.prepare(spec) as cache:
        cache.append(0, k, v)
        for first in range(0, d, GROUP):
            q = np.tile(basis[first : first + GROUP], (heads, 1))
            logits = cache.scores(0, q).reshape(heads, GROUP, tokens)
            out[:, :, first : first + GROUP] = logits.transpose(2, 0, 1)
    return out


def read_values(
    backend: Backend, spec: kvassay.Spec, k: FloatArray, v: FloatArray, count: int
) -> NDArray[np.float64]:
    """The first `count` values as attention returns them, (count, kv_heads, d).

    Each query head asks for one token with four times its key: all other weights underflow.
    The spec's window keeps as many newer tokens as there are queries.
    """
    heads, d = k.shape[1:]
    calls = -(-count // GROUP)
    wanted = np.minimum(np.arange(calls * GROUP), count - 1).reshape(calls, GROUP)
    q = 4 * k[wanted].transpose(0, 2, 1, 3).reshape(calls, heads * GROUP, d)
    with backend.prepare(spec) as cache:
        cache.append(0, k, v)
        found = cache.attend(0, q)
    rows = found.reshape(calls, heads, GROUP, d).transpose(0, 2, 1, 3).reshape(-1, heads, d)
    return rows[:count].astype(np.float64)
