"""A digest of a model's norm weights: what its files in all formats have in common.

Quantization rounds matrices and leaves these alone, and training moves them, so two files have
equal digests if they hold the same trained model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from kvassay.models.attention import Floats
from kvassay.models.llama import Model


def norms_digest(norms: Iterable[Floats]) -> str:
    """Hex sha256 of norm weights, each (hidden,), in any order."""
    each = sorted(
        hashlib.sha256(np.ascontiguousarray(norm, dtype="<f4").tobytes()).digest() for norm in norms
    )
    return hashlib.sha256(b"".join(each)).hexdigest()


def norms_of(model: Model) -> str:
    """The digest of all norms over the residual stream of a model."""
    named = ("attention_norm", "ffn_norm", "attention_after", "ffn_after")
    layers = [getattr(layer, name) for layer in model.weights.layers for name in named]
    return norms_digest(norm for norm in (*layers, model.weights.norm) if norm is not None)
