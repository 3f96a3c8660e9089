"""Inputs and comparisons that the tests of the index share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvassay.retrieval import Index

F32 = NDArray[np.float32]


def gaussian(seed: int, n: int, dim: int) -> F32:
    return np.random.default_rng(seed).standard_normal((n, dim), dtype=np.float32)


def state(index: Index) -> tuple[Any, ...]:
    """Everything an index holds, as bytes."""
    stored = index._store.stored
    vectors = index.vectors
    return (
        len(index),
        index.ids.tolist(),
        stored.tiles.tobytes(),
        stored.scales.tobytes(),
        None if vectors is None else vectors.tobytes(),
    )


def filled(n: int = 40, dim: int = 24, bits: int = 4, **fields: Any) -> Index:
    """An index of Gaussian vectors on the reference scorer."""
    index = Index(dim, bits, backend="reference", **fields)
    index.add(gaussian(1, n, dim))
    return index
