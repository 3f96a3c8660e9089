"""The functions a forward pass is made of, float32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kvassay.models.architecture import RopeOrder
from kvassay.models.attention import Floats


def rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    """Root-mean-square normalisation over the last axis (Zhang and Sennrich 2019)."""
    square = np.mean(x * x, axis=-1, keepdims=True, dtype=np.float32)
    root: Floats = np.sqrt(square + np.float32(eps))
    return x / root * weight


def rope_table(
    positions: npt.NDArray[np.integer] | npt.NDArray[np.floating],
    head_dim: int,
    base: float,
    factors: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Cosines and sines of the RoPE angles (Su et al. 2021), float32 (positions, head_dim / 2).

    Angle i of position p is p * base ** (-2 i / head_dim) / factors[i], computed in float64.
    """
    frequency = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if factors is not None:
        frequency = frequency / factors.astype(np.float64)
    angle = positions.astype(np.float64)[:, None] * frequency
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def rope(x: Floats, cos: Floats, sin: Floats, order: RopeOrder = "interleaved") -> Floats:
    """Turn pairs of channels: (2i, 2i+1), the order of Llama weights in GGUF, or (i, i + d/2).

    x: float32 (tokens, heads, head_dim); cos, sin: from ``rope_table``, one row a token.
    """
    half = x.shape[-1] // 2
    if order == "interleaved":
        one, other = slice(0, None, 2), slice(1, None, 2)
    else:
        one, other = slice(0, half), slice(half, None)
    a, b = x[..., one], x[..., other]
    c, s = cos[:, None, :], sin[:, None, :]
    out = np.empty_like(x)
    out[..., one] = a * c - b * s
    out[..., other] = a * s + b * c
    return out


def silu(x: Floats) -> Floats:
    """x times the logistic function of x."""
    with np.errstate(over="ignore"):  # exp(-x) may reach infinity, where silu is 0
        decay: Floats = np.exp(-x)
    decay += np.float32(1.0)
    return x / decay


def gelu_tanh(x: Floats) -> Floats:
    """The tanh form of GELU (Hendrycks and Gimpel 2016, arXiv 1606.08415)."""
    inner = np.float32(np.sqrt(2.0 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    gate: Floats = np.float32(0.5) * (np.float32(1.0) + np.tanh(inner))
    return x * gate
