"""Stored vectors in the codes of KV caches: a small index (docs/retrieval.md).

from kvassay.retrieval import Index

index = Index(dim=384, bits=4, keep_vectors=True)
ids = index.add(vectors)
scores, found = index.search(queries, k=10, rerank=50)
"""

from .calibration import KINDS, Calibration
from .code import BITS, VectorCode
from .index import METRICS, Index
from .protocol import Affine, Scorer, ScorerProvider, Stored
from .scorers import load_scorer, scorers

__all__ = [
    "BITS",
    "KINDS",
    "METRICS",
    "Affine",
    "Calibration",
    "Index",
    "Scorer",
    "ScorerProvider",
    "Stored",
    "VectorCode",
    "load_scorer",
    "scorers",
]
