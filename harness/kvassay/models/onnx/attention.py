"""How the layers of a graph attend: what is added to it between projections and output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from kvassay.models.config import ModelConfig

from .nodes import MICROSOFT, Builder


class GraphAttention(Protocol):
    """Adds the attention of a layer to a graph."""

    def domains(self) -> dict[str, int]:
        """Operator domains it uses, with their versions."""

    def inputs(self, graph: Builder, config: ModelConfig) -> None:
        """Inputs of the graph that all layers share, beside tokens and start."""

    def layer(
        self, graph: Builder, config: ModelConfig, number: int, q: str, k: str, v: str
    ) -> str:
        """The attention of a layer: q, k after RoPE and v, each (1, tokens, heads * head dim).

        Adds the layer's cache as inputs and outputs. Returns the name of the output
        (1, tokens, query heads * head dim).
        """


@dataclass(frozen=True)
class GroupQuery:
    """ONNX Runtime's own GroupQueryAttention over a shared buffer: float32, float16 or int8.

    scales: for each layer those of its keys and values, float32 (KV heads * head dim,); they make
    the cache int8, a scale a channel, which older versions of ONNX Runtime refuse.

    Inputs: past_key.i and past_value.i (1, KV heads, capacity, head dim); seqlens_k int32 (1,), the
    number of tokens after this run less one; total_length int32 (1,). Outputs present_key.i and
    present_value.i, to be bound to the same buffers.
    """

    half: bool = False
    scales: Sequence[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]] | None = None

    def domains(self) -> dict[str, int]:
        return {MICROSOFT: 1}

    def inputs(self, graph: Builder, config: ModelConfig) -> None:
        graph.input("seqlens_k", TensorProto.INT32, [1])
        graph.input("total_length", TensorProto.INT32, [1])

    def layer(
        self, graph: Builder, config: ModelConfig, number: int, q: str, k: str, v: str
    ) -> str:
        kind = TensorProto.FLOAT16 if self.half else TensorProto.FLOAT
        if self.scales:
            kind = TensorProto.INT8
        name = f"layer.{number}.attention"
        shape: list[int | str] = [1, config.kv_heads, "capacity", config.head_dim]
        past = [graph.input(f"past_{s}.{number}", kind, shape) for s in ("key", "value")]
        rows = [q, k, v]
        if self.half:
            rows = [graph.one("Cast", [x], f"{name}.{i}.half", to=kind) for i, x in enumerate(rows)]
        more, given = self._quantized(graph, number, name)
        out = graph.add(
            "GroupQueryAttention",
            [*rows, *past, "seqlens_k", "total_length", *more],
            name,
            3,
            MICROSOFT,
            num_heads=config.query_heads,
            kv_num_heads=config.kv_heads,
            **given,
        )
        for stream, made in zip(("key", "value"), out[1:], strict=True):
            graph.one("Identity", [made], f"present_{stream}.{number}")
            graph.output(f"present_{stream}.{number}", kind, shape)
        return graph.one("Cast", [out[0]], f"{name}.float", to=1) if self.half else out[0]

    def _quantized(
        self, graph: Builder, number: int, name: str
    ) -> tuple[list[str], dict[str, Any]]:
        """Inputs and attributes of a quantized cache; none of another."""
        if not self.scales:
            return [], {}
        kept = [
            graph.constant(f"{name}.{stream}_scale", scale)
            for stream, scale in zip("kv", self.scales[number], strict=True)
        ]
        each = dict.fromkeys(("k_quant_type", "v_quant_type"), "PER_CHANNEL")
        return ["", "", "", "", "", *kept], {**each, "kv_cache_bit_width": 8}
