"""What the tests of codecs share: making one, and data that no transform shares its seed with."""

from __future__ import annotations

from typing import Any

import numpy as np

import kvassay
from kvassay.protocol import FloatArray
from kvassay.vector_codec import VectorCodec, register_codecs
from kvassay_codecs import published

# An install older than the entry point does not know them yet.
if not set(published) <= set(kvassay.codecs()):
    register_codecs(published)

NAMES = tuple(published)
#: (name, role) of every codec; llama.cpp's, fp8 and the like store both alike.
BOTH = tuple((name, role) for name in NAMES for role in ("key", "value"))


def make(name: str, head_dim: int = 128, **params: Any) -> VectorCodec:
    if name == "spinquant":  # a hundred steps, its default, take seconds each time
        params.setdefault("steps", 8)
    return kvassay.codec(name, head_dim=head_dim, **params)


def gaussian(seed: int, *shape: int) -> FloatArray:
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence((0x44415441, seed))))
    return random.standard_normal(shape, dtype=np.float32)


def units(seed: int, n: int, d: int) -> FloatArray:
    x = gaussian(seed, n, d)
    out: FloatArray = x / np.linalg.norm(x, axis=1, keepdims=True)
    return out


def decoded(codec: VectorCodec, x: FloatArray) -> FloatArray:
    return codec.encode(x).decode()


def vnmse(x: FloatArray, y: FloatArray) -> float:
    """Mean over vectors of |x - y|^2 / |x|^2 (arXiv 2108.08842)."""
    wide = x.astype(np.float64)
    return float(np.mean(np.square(wide - y).sum(-1) / np.square(wide).sum(-1)))


def nmse(x: FloatArray, y: FloatArray) -> float:
    wide = x.astype(np.float64)
    return float(np.square(wide - y).sum() / np.square(wide).sum())
