"""numpy: a plain float32 matrix product, which packed scorers have to beat."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .cases import Case
from .inputs import Inputs
from .protocol import Peer, Prepared, Result, installed


class _Scores(Prepared):
    def __init__(self, case: Case, inputs: Inputs) -> None:
        # (kv_heads, tokens, d): each head's keys in one piece, as a matrix product likes them
        self._keys = np.ascontiguousarray(inputs.keys.transpose(1, 0, 2))
        self._q = np.ascontiguousarray(
            inputs.q[0].reshape(case.kv_heads, case.group, case.head_dim).transpose(0, 2, 1)
        )
        self._out = np.empty((case.kv_heads, case.tokens, case.group), np.float32)
        self.bytes = self._keys.nbytes

    def run(self) -> None:
        np.matmul(self._keys, self._q, out=self._out)

    def result(self) -> Result:
        heads, tokens, group = self._out.shape
        return self._out.transpose(0, 2, 1).reshape(heads * group, tokens)


class NumpyPeer(Peer):
    """q.K^T of float32 keys; one query head is a matrix-vector product."""

    name = "numpy"

    def types(self, case: Case) -> Mapping[str, float]:
        return {"f32": 1e-5} if case.kind in ("scan", "scores") else {}

    def version(self) -> str:
        return installed("numpy")

    def prepare(self, case: Case, type_: str, inputs: Inputs, threads: int) -> Prepared:
        return _Scores(case, inputs)


peer = NumpyPeer()
