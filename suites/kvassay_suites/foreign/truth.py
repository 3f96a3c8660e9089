"""Inputs, and exact attention over what a format's codecs decode of them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kvassay.backend.own_formats import OwnFormat, turned
from kvassay.protocol import FloatArray
from kvassay.spec import Spec
from kvassay.vector_codec import codec

from ..oracle import attend64

#: Channels, or tokens, that most formats give a scale in common.
GROUP: Final = 32


def inputs(
    kind: str, seed: int, shape: Spec, tokens: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Keys, values and one query; logits of a spread that leaves attention neither flat nor
    one-hot."""
    rng = np.random.default_rng(seed)

    def draw(*size: int) -> FloatArray:
        return rng.standard_normal(size, np.float32)

    rows = (tokens, shape.kv_heads, shape.head_dim)
    k, v = draw(*rows), draw(*rows)
    q = 2 * draw(shape.query_heads, shape.head_dim)
    if kind == "outliers":
        k[:, :, :4] *= 10
        q[:, :4] /= 10
    if kind == "biased":
        k += 3 * draw(shape.kv_heads, shape.head_dim)
    if kind == "stepped":
        channels = step(shape.head_dim)
        k, v, q = k * channels, v * channels, q / channels
        rising = step(tokens)[:, None, None]
        k, v = k * np.sqrt(np.sqrt(rising)), v * rising
    return k, v, q


def expected(
    format_: OwnFormat, shape: Spec, k: FloatArray, v: FloatArray, q: FloatArray
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Exact attention over what the codecs decode."""
    d, block = shape.head_dim, format_.hadamard
    keys = codec(format_.keys, head_dim=d, role="key").encode(turned(k, block)).decode()
    values = codec(format_.values, head_dim=d, role="value").encode(turned(v, block)).decode()
    return exact(shape, turned(keys, block), turned(values, block), q)


def exact(
    shape: Spec, k: FloatArray, v: FloatArray, q: FloatArray
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Exact attention of (query_heads, head_dim) over k and v (tokens, kv_heads, head_dim)."""
    scale = shape.effective_softmax_scale
    return attend64(k.astype(np.float64), v.astype(np.float64), q, scale, 0, 0, len(k))


def step(count: int) -> FloatArray:
    """1 and 4 by turns for groups of so many channels or tokens: a scale of the group beside is far
    off, whatever the data are."""
    return np.where(np.arange(count) // GROUP % 2, 4, 1).astype(np.float32)
