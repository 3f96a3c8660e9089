"""turbovec: a vector index of 4-bit codes, searched with one query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from .cases import Case
from .inputs import Inputs
from .protocol import Best, Peer, Prepared, Result, installed, need

_BEST: Final = 10


class _Scan(Prepared):
    def __init__(self, case: Case, inputs: Inputs) -> None:
        self._index = need("turbovec").TurboQuantIndex(dim=case.head_dim, bit_width=4)
        self._index.add(np.ascontiguousarray(inputs.keys[:, 0]))
        self._index.prepare()
        self._q = inputs.q[0]
        self.bytes = case.tokens * case.head_dim // 2

    def run(self) -> None:
        self._scores, self._ids = self._index.search(self._q, _BEST)

    def result(self) -> Result:
        return Best(self._ids[0].astype(np.int64), self._scores[0])


class TurbovecPeer(Peer):
    """A search for the ten best; its threads are rayon's, set when its process starts."""

    name = "turbovec"

    def types(self, case: Case) -> Mapping[str, float]:
        return {"4 bits": 0.15} if case.kind == "scan" else {}

    def version(self) -> str:
        need("turbovec")
        return installed("turbovec")

    def prepare(self, case: Case, type_: str, inputs: Inputs, threads: int) -> Prepared:
        return _Scan(case, inputs)


peer = TurbovecPeer()
