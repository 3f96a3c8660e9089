"""Backends that share, and small specs and tokens for the tests of what they share."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import kvassay
from kvassay import Backend, Cache, Identity, Spec
from kvassay.protocol import FloatArray

FIELDS: Final[dict[str, Any]] = {
    **{"layers": 2, "kv_heads": 1, "query_heads": 2, "head_dim": 16, "page_tokens": 16},
    **{"keys": "turbo:3.5", "values": "turbo:3", "key_centre": "page", "value_centre": "frozen"},
    **{"window": 8, "sinks": 2},
}


def targets() -> list[str]:
    """Every variant that runs here and whose backend shares, as backend.variant."""
    return [
        f"{name}.{variant}"
        for name, variants in kvassay.backends().items()
        for variant, state in variants.items()
        if state.runs and kvassay.load(name, variant).shares
    ]


def load(target: str) -> Backend:
    """The backend of such a name."""
    name, _, variant = target.partition(".")
    return kvassay.load(name, variant)


def spec_of(**fields: Any) -> Spec:
    """The small spec with some fields replaced."""
    return Spec(**{**FIELDS, "identity": Identity(model="one"), **fields})


def rows(spec: Spec, tokens: list[int], stream: int) -> FloatArray:
    """Keys (0) or values (1) of these tokens: equal tokens have equal rows."""
    shape = (251, spec.kv_heads, spec.head_dim)
    table = np.random.default_rng(stream).standard_normal(shape, np.float32)
    return table[np.asarray(tokens, np.intp) % 251]


def give(cache: Cache, tokens: list[int]) -> Cache:
    """Append these tokens to every layer."""
    for layer in range(cache.spec.layers):
        cache.append(layer, rows(cache.spec, tokens, 0), rows(cache.spec, tokens, 1))
    return cache
