"""FAISS: product quantization with in-register tables (fast-scan), as many codes as ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from .cases import Case
from .inputs import Inputs
from .protocol import Best, Peer, Prepared, Result, installed, need

_BEST: Final = 10
_TRAINING: Final = 1 << 14


class _Scan(Prepared):
    def __init__(self, case: Case, inputs: Inputs, threads: int) -> None:
        faiss = need("faiss-cpu", "faiss")
        faiss.omp_set_num_threads(threads)
        keys = inputs.keys[:, 0]
        # one 4-bit code a channel: 64 bytes a key at d = 128
        self._index = faiss.IndexPQFastScan(
            case.head_dim, case.head_dim, 4, faiss.METRIC_INNER_PRODUCT
        )
        self._index.train(keys[:_TRAINING])
        self._index.add(keys)
        self._q = inputs.q[0]
        self.bytes = case.tokens * case.head_dim // 2

    def run(self) -> None:
        self._scores, self._ids = self._index.search(self._q, _BEST)

    def result(self) -> Result:
        return Best(self._ids[0].astype(np.int64), self._scores[0])


class FaissPeer(Peer):
    """A search for the ten best; it returns no other scores."""

    name = "FAISS fast-scan"

    def types(self, case: Case) -> Mapping[str, float]:
        return {"4 bits": 0.15} if case.kind == "scan" else {}

    def version(self) -> str:
        need("faiss-cpu", "faiss")
        return installed("faiss-cpu")

    def prepare(self, case: Case, type_: str, inputs: Inputs, threads: int) -> Prepared:
        return _Scan(case, inputs, threads)


peer = FaissPeer()
