"""Attention in float64, straight from its definition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


def attended(tokens: int, visible: int, span: int, sinks: int) -> NDArray[np.bool_]:
    """Which tokens a query of visible length `visible` attends (numeric contract, section 9)."""
    index = np.arange(tokens)
    inside = (index < sinks) | (index >= visible - span) if span else np.ones(tokens, bool)
    return inside & (index < visible)


def scores64(
    k: Float64, q: NDArray[np.floating], softmax_scale: float, span: int, sinks: int, visible: int
) -> Float64:
    """Logits (query_heads, tokens) of keys k (tokens, kv_heads, d), -inf where not attended."""
    query = np.asarray(q, np.float64)
    group = query.shape[0] // k.shape[1]
    mask = attended(len(k), visible, span, sinks)
    out = np.full((len(query), len(k)), -np.inf)
    for head in range(len(query)):
        out[head, mask] = k[mask, head // group] @ query[head] * softmax_scale
    return out


def softmax64(logits: Float64) -> Float64:
    """Softmax over the last axis; -inf gives 0."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    out: Float64 = weights / weights.sum(-1, keepdims=True)
    return out


def attend64(
    k: Float64,
    v: Float64,
    q: NDArray[np.floating],
    softmax_scale: float,
    span: int,
    sinks: int,
    visible: int,
) -> Float64:
    """Attention outputs (query_heads, d) of one query position; span 0 means none."""
    weights = softmax64(scores64(k, q, softmax_scale, span, sinks, visible))
    mask = attended(len(k), visible, span, sinks)
    group = len(weights) // k.shape[1]
    heads = [weights[head, mask] @ v[mask, head // group] for head in range(len(weights))]
    return np.stack(heads)
