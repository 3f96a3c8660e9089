"""torch: scaled_dot_product_attention on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cases import Case
from .inputs import Inputs
from .protocol import Peer, Prepared, Result, installed, need


class _Attention(Prepared):
    def __init__(self, case: Case, type_: str, inputs: Inputs, threads: int) -> None:
        self._torch = need("torch")
        self._torch.set_num_threads(threads)
        dtype = self._torch.float16 if type_.startswith("f16") else self._torch.float32
        self._grouped = type_.endswith("grouped")
        self._case = case
        self._k, self._v = (
            self._tensor(x.transpose(1, 0, 2)[None], dtype) for x in (inputs.keys, inputs.values)
        )
        q = inputs.q.transpose(1, 0, 2)[None]
        if self._grouped:
            q = q.reshape(1, case.kv_heads, case.group, case.head_dim)
        self._q = self._tensor(q, dtype)
        self._mask = None
        if case.queries > 1:
            places = self._torch.arange(case.tokens)
            self._mask = places <= places[-case.queries :, None]
        self.bytes = self._k.nbytes + self._v.nbytes
        self._out: Any = None

    def _tensor(self, array: NDArray[np.float32], dtype: Any) -> Any:
        return self._torch.from_numpy(array.copy(order="C")).to(dtype)

    def run(self) -> None:
        with self._torch.inference_mode():
            self._out = self._torch.nn.functional.scaled_dot_product_attention(
                self._q, self._k, self._v, self._mask, enable_gqa=not self._grouped
            )

    def result(self) -> Result:
        case = self._case
        out = self._out.float().reshape(case.query_heads, case.queries, case.head_dim)
        found: Result = out.transpose(0, 1).contiguous().numpy()
        return found


class TorchPeer(Peer):
    """`grouped` hands the query heads of a group over as rows of one head, so that a key is read
    once for all of them: the fastest way to ask SDPA for a decode step."""

    name = "torch SDPA"

    def types(self, case: Case) -> Mapping[str, float]:
        if case.kind != "attend":
            return {}
        types = {"f32": 1e-4, "f16": 1e-2}
        return types if case.queries > 1 else {**types, "f32 grouped": 1e-4, "f16 grouped": 1e-2}

    def version(self) -> str:
        need("torch")
        return installed("torch")

    def prepare(self, case: Case, type_: str, inputs: Inputs, threads: int) -> Prepared:
        return _Attention(case, type_, inputs, threads)


peer = TorchPeer()
