"""Product quantization: Jegou, Douze, Schmid, TPAMI 2011, by faiss.

Sub-vectors of 8 / b channels, each replaced by the nearest of 256 centroids that k-means learnt.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvassay.errors import InputError, UnavailableError

from .base import F32, Codec, Held, Shape, f32

CENTROIDS = 256


class PQ(Codec):
    """One byte a sub-vector; the centroids, fp16 (sub-vectors, 256, 8 / b), are a fitted part.

    All heads share the codebooks. Needs the package faiss-cpu, and 256 vectors to learn from.
    """

    paper = "Jegou, Douze, Schmid 2011 (TPAMI 33), equation 8"
    granularity = "8 / b channels"
    claim = "none for caches"
    rates = (2.0, 1.0, 4.0)
    learns = True

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self._faiss = _faiss()
        self.parts = int(self.head_dim * self.bits / 8)

    def _quantizer(self) -> Any:
        quantizer = self._faiss.ProductQuantizer(self.head_dim, self.parts, 8)
        quantizer.cp.seed = self.seed % 2**31
        quantizer.cp.min_points_per_centroid = 1  # else faiss prints a warning to stderr
        return quantizer

    def _learn(self, x: F32) -> Held:
        rows = x.reshape(-1, self.head_dim)
        if len(rows) < CENTROIDS:
            raise InputError(
                f"encode: {len(rows)} vectors are too few to learn {CENTROIDS} centroids from; "
                f"give as many, or fit the codec on more data first"
            )
        quantizer = self._quantizer()
        quantizer.train(rows)
        centroids = self._faiss.vector_to_array(quantizer.centroids)
        return {"centroids": centroids.reshape(self.parts, CENTROIDS, -1).astype(np.float16)}

    def _pack(self, x: F32) -> Held:
        quantizer = self._quantizer()
        stored = f32(self._learnt("centroids"))
        self._faiss.copy_array_to_vector(stored.ravel(), quantizer.centroids)
        codes = quantizer.compute_codes(x.reshape(-1, self.head_dim))
        return {"codes": codes.reshape(*x.shape[:2], self.parts)}

    def _unpack(self, held: Held, shape: Shape) -> F32:
        stored = f32(self._learnt("centroids"))
        return stored[np.arange(self.parts), held["codes"]].reshape(shape)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise UnavailableError(
            "codec 'pq': the package faiss is missing; pip install faiss-cpu"
        ) from error
    return faiss
