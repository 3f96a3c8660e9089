"""What is stored and asked for: two synthetic families, captured keys, embeddings of passages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..quality.real_model import fixed_text

F32 = NDArray[np.float32]
Found = NDArray[np.int64]

K: Final = 10
QUERIES: Final = 200
#: Outlier channels of the anisotropic family, how much larger they are, and their common bias.
_OUTLIERS: Final = 4
_OUTLIER: Final = 12.0
_BIAS: Final = 6.0
#: The layer and KV head whose keys are stored: the middle of SmolLM2-135M.
_LAYER, _HEAD = 14, 1
_BLOCK: Final = 1 << 14


@dataclass(frozen=True, eq=False)
class Data:
    """Vectors (n, d), queries (m, d), and the rows of the ten best of each query by inner product
    in float64, best first."""

    name: str
    x: F32
    q: F32
    best: Found


def load_data(name: str, n: int, dim: int, model: str = "smollm2-135m") -> Data:
    """A data set; raises KeyError for a name that is none."""
    return _MAKERS[name](n, dim, model)


@lru_cache(maxsize=2)
def isotropic(n: int, dim: int, model: str = "") -> Data:
    """Directions drawn evenly from the sphere."""
    return make("isotropic", _unit(_normal(11, n, dim)), _unit(_normal(12, QUERIES, dim)))


@lru_cache(maxsize=2)
def anisotropic(n: int, dim: int, model: str = "") -> Data:
    """A spectrum that falls with the root of the rank, and a few channels much larger than the rest
    around a common bias."""
    source = np.random.default_rng(13)
    spread = np.sqrt(1.0 / (1 + source.permutation(dim))).astype(np.float32)
    outliers = source.choice(dim, _OUTLIERS, replace=False)
    spread[outliers] *= _OUTLIER
    bias = np.zeros(dim, np.float32)
    bias[outliers] = _BIAS * spread[outliers]
    x, q = (_normal(seed, count, dim) * spread for seed, count in ((14, n), (15, QUERIES)))
    return make("anisotropic", x + bias, q)


@lru_cache(maxsize=1)
def keys(n: int, dim: int, model: str) -> Data:
    """Keys of one head of a real model over a fixed text, and queries of its query heads."""
    captured = fixed_text(model, n)
    group = captured.q[_LAYER].shape[1] // captured.k[_LAYER].shape[1]
    queries = captured.q[_LAYER][-QUERIES:, _HEAD * group]
    return make("keys", captured.k[_LAYER][:, _HEAD].copy(), queries.copy())


def embeddings(n: int, dim: int, model: str) -> Data:
    """Passages of CPython's documentation, embedded by MiniLM; every eighth is asked for."""
    from .minilm import embedded_passages

    found = embedded_passages(n + QUERIES)
    asked = np.zeros(len(found), bool)
    asked[:: len(found) // QUERIES] = True
    asked[np.flatnonzero(asked)[QUERIES:]] = False
    return make("embeddings", found[~asked], found[asked])


_MAKERS: Final[dict[str, Callable[[int, int, str], Data]]] = {
    "isotropic": isotropic,
    "anisotropic": anisotropic,
    "keys": keys,
    "embeddings": embeddings,
}


#: Data sets that a model gives.
REAL: Final = ("keys", "embeddings")


def make(name: str, x: F32, q: F32) -> Data:
    """A data set with its exact answers."""
    return Data(name, x, q, exact(x, q))


def exact(x: F32, q: F32) -> Found:
    """The flat baseline: rows of the K best of each query, best first, ties by row."""
    wide = q.astype(np.float64)
    parts = [wide @ x[i : i + _BLOCK].T.astype(np.float64) for i in range(0, len(x), _BLOCK)]
    scores = np.concatenate(parts, axis=1)
    best: Found = np.argsort(-scores, axis=1, kind="stable")[:, :K]
    return best


def recall(found: Found, best: Found) -> float:
    """Recall@10: the share of the ten best that was found."""
    hits = [np.isin(a, b).sum() for a, b in zip(best, found, strict=True)]
    return float(np.sum(hits)) / best.size


def _normal(seed: int, n: int, dim: int) -> F32:
    return np.random.default_rng(seed).standard_normal((n, dim), dtype=np.float32)


def _unit(x: F32) -> F32:
    unit: F32 = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit
