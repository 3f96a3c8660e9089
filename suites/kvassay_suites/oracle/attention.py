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
    heads, d = k.shape[1:]
    query = np.asarray(q, np.float64).reshape(heads, -1, d)
    logits = (query @ k.transpose(1, 2, 0)).reshape(-1, len(k)) * softmax_scale
    return np.where(attended(len(k), visible, span, sinks), logits, -np.inf)


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
    heads, d = v.shape[1:]
    weights = softmax64(scores64(k, q, softmax_scale, span, sinks, visible))
    mask = attended(len(v), visible, span, sinks)
    held = np.where(mask[:, None, None], v, 0.0).transpose(1, 0, 2)
    out: Float64 = (weights.reshape(heads, -1, len(v)) @ held).reshape(-1, d)
    return out
