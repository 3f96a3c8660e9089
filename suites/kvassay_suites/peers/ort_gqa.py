"""ONNX Runtime: the GroupQueryAttention operator, past and present in one buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .cases import Case
from .inputs import Inputs
from .protocol import Peer, Prepared, Result, installed, need

#: Element type of the cache, and of queries and new rows.
_TYPES: Final = {
    "f32": (np.float32, np.float32),
    "f16": (np.float16, np.float16),
    "int8": (np.int8, np.float32),
}


def _model(case: Case, type_: str) -> bytes:
    """An ONNX model of one GroupQueryAttention."""
    onnx = need("onnx")
    helper, names = onnx.helper, onnx.TensorProto
    cache, rows = (helper.np_dtype_to_tensor_dtype(np.dtype(t)) for t in _TYPES[type_])
    past = [1, case.kv_heads, case.tokens, case.head_dim]
    hidden = case.query_heads * case.head_dim
    kv_hidden = case.kv_heads * case.head_dim
    inputs = [
        ("query", rows, [1, case.queries, hidden]),
        ("key", rows, [1, case.queries, kv_hidden]),
        ("value", rows, [1, case.queries, kv_hidden]),
        ("past_key", cache, past),
        ("past_value", cache, past),
        ("seqlens_k", names.INT32, [1]),
        ("total_sequence_length", names.INT32, []),
    ]
    attributes: dict[str, Any] = {"num_heads": case.query_heads, "kv_num_heads": case.kv_heads}
    arguments = [name for name, _, _ in inputs]
    if type_ == "int8":
        attributes |= dict.fromkeys(("k_quant_type", "v_quant_type"), "PER_CHANNEL")
        attributes["kv_cache_bit_width"] = 8
        inputs += [(name, names.FLOAT, [kv_hidden]) for name in ("k_scale", "v_scale")]
        arguments += [""] * 5 + ["k_scale", "v_scale"]
    outputs = [
        ("output", rows, [1, case.queries, hidden]),
        ("present_key", cache, past),
        ("present_value", cache, past),
    ]
    node = helper.make_node(
        "GroupQueryAttention",
        arguments,
        [name for name, _, _ in outputs],
        domain="com.microsoft",
        **attributes,
    )
    graph = helper.make_graph(
        [node],
        "attention",
        [helper.make_tensor_value_info(*item) for item in inputs],
        [helper.make_tensor_value_info(*item) for item in outputs],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return model


class _Attention(Prepared):
    """A step appends its own tokens to the shared buffers, as the operator cannot do without."""

    def __init__(self, case: Case, type_: str, inputs: Inputs, threads: int) -> None:
        ort = need("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self._session = ort.InferenceSession(
            _model(case, type_), options, providers=["CPUExecutionProvider"]
        )
        self._binding = self._session.io_binding()
        self._case = case
        self._keep: list[Any] = []
        cache_type, row_type = _TYPES[type_]
        new = slice(case.tokens - case.queries, None)
        for name, rows in (("query", inputs.q), ("key", inputs.keys), ("value", inputs.values)):
            part = rows if name == "query" else rows[new]
            self._bind(ort, name, part.reshape(1, case.queries, -1).astype(row_type))
        for name, rows in (("key", inputs.keys), ("value", inputs.values)):
            stored = np.ascontiguousarray(rows.transpose(1, 0, 2))[None]
            if type_ == "int8":
                scale = np.abs(stored).max(axis=2, keepdims=True) / 127
                self._bind(ort, f"{name[0]}_scale", scale.ravel().astype(np.float32))
                stored = np.rint(stored / scale)
            stored = stored.astype(cache_type)
            stored[:, :, new] = 0  # the step itself has to put them there
            value = self._bind(ort, f"past_{name}", stored)
            self._binding.bind_ortvalue_output(f"present_{name}", value)
            self.bytes += stored.nbytes
        self._bind(ort, "seqlens_k", np.array([case.tokens - 1], np.int32))
        self._bind(ort, "total_sequence_length", np.array(case.tokens, np.int32))
        out = np.zeros((1, case.queries, case.query_heads * case.head_dim), row_type)
        self._out = ort.OrtValue.ortvalue_from_numpy(out)
        self._binding.bind_ortvalue_output("output", self._out)

    def _bind(self, ort: Any, name: str, array: NDArray[Any]) -> Any:
        value = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
        self._keep.append(value)
        self._binding.bind_ortvalue_input(name, value)
        return value

    def run(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def result(self) -> Result:
        case = self._case
        out = self._out.numpy().astype(np.float32)
        found: Result = out.reshape(case.queries, case.query_heads, case.head_dim)
        return found


class OrtPeer(Peer):
    """int8 is the operator's quantized cache with a scale for each channel of each head."""

    name = "ONNX Runtime GQA"

    def types(self, case: Case) -> Mapping[str, float]:
        return {"f32": 1e-4, "f16": 1e-2, "int8": 5e-2} if case.kind == "attend" else {}

    def version(self) -> str:
        need("onnx")
        need("onnxruntime")
        return installed("onnxruntime")

    def prepare(self, case: Case, type_: str, inputs: Inputs, threads: int) -> Prepared:
        return _Attention(case, type_, inputs, threads)


peer = OrtPeer()
