"""The graph of a Llama-architecture model (docs/onnxruntime.md, "As a backend")."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from onnx import ModelProto, TensorProto, helper

from kvassay.errors import InputError
from kvassay.models.config import ModelConfig
from kvassay.models.functions import rope_table
from kvassay.models.gguf_file import GGUFFile
from kvassay.models.loading import ROPE_FACTORS, layer_shapes, read_config

from .attention import GraphAttention
from .linear import (
    Blocks,
    Floats,
    GraphLinear,
    Precision,
    Stored,
    look_up,
    multiply,
    read_stored,
    unpack,
)
from .nodes import MICROSOFT, Builder

OPSET: Final = 17
IR_VERSION: Final = 8


def build(
    path: str | Path,
    attention: GraphAttention,
    precision: Precision = "int8",
    context: int = 0,
    linear: GraphLinear | None = None,
) -> tuple[ModelProto, ModelConfig]:
    """A model whose output is logits float32 (1, vocabulary) of the last token.

    Its inputs, besides those of the attention: tokens int64 (tokens,) and start int64 (1,), the
    position of the first. context: positions that RoPE is tabulated for, 0 for the model's. linear:
    what multiplies by stored weights; None for ONNX Runtime's own operator. Raises ModelError for a
    file that is damaged or of another architecture.
    """
    file = GGUFFile(path)
    config, _ = read_config(file)
    if config.architecture != "llama" or config.rope_divisor != 1:
        raise file.error(f"no graph for {config.architecture} or for scaled RoPE; supported: llama")
    if ROPE_FACTORS in file.tensor_names():
        raise file.error(f"no graph for a model with the tensor {ROPE_FACTORS!r}")
    weights = _Weights(file, config, precision, linear)
    graph = Builder()
    tokens = graph.input("tokens", TensorProto.INT64, ["n"])
    graph.input("start", TensorProto.INT64, [1])
    attention.inputs(graph, config)
    _rope_tables(graph, config, context or config.context)
    table = weights.matrix("token_embd", (config.vocab, config.hidden))
    x = weights.look_up(graph, tokens, table, "embedding")
    normed = _norm(graph, config, x, weights.norm(0, "attention_norm"), "first_norm")
    for number in range(config.layers):
        after = (
            weights.norm(number + 1, "attention_norm")
            if number + 1 < config.layers
            else weights.vector("output_norm")
        )
        x, normed = _layer(graph, config, weights, attention, number, x, normed, after)
    rows = graph.one("Gather", [normed, graph.numbers(-1)], "last", axis=1)
    last = graph.reshape(rows, "last_row", 1, config.hidden)
    head = weights.head(table)
    weights.multiply(graph, last, head, "logits", "embedding" if head is table else "output")
    graph.output("logits", TensorProto.FLOAT, [1, config.vocab])
    domains = {
        "": OPSET,
        MICROSOFT: 1,
        **attention.domains(),
        **(linear.domains() if linear else {}),
    }
    opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    made = helper.make_model(graph.graph(config.name), opset_imports=opsets, ir_version=IR_VERSION)
    return made, config


class _Weights:
    """Weights of a file in the form that was asked for, and products with them."""

    def __init__(
        self, file: GGUFFile, config: ModelConfig, precision: Precision, linear: GraphLinear | None
    ) -> None:
        if linear and precision != "int8":
            raise InputError(f"precision {precision!r}: an operator for stored weights has int8")
        self._file = file
        self._hidden = config.hidden
        self._shapes = layer_shapes(config)
        self._precision: Precision = precision
        self._linear = linear

    def matrix(self, name: str, shape: tuple[int, int]) -> Stored | Blocks | Floats:
        """A matrix as stored where it is in blocks and not wanted as float32."""
        stored = self._stored(name, shape)
        return self._file.tensor(f"{name}.weight", shape) if stored is None else self._form(stored)

    def _stored(self, name: str, shape: tuple[int, int]) -> Stored | None:
        if self._precision == "float32":
            return None
        return read_stored(self._file, f"{name}.weight", shape)

    def _form(self, stored: Stored) -> Stored | Blocks:
        """As the products want it; what the operator does not accept is ONNX Runtime's."""
        return stored if self._linear and self._linear.accepts(stored) else unpack(stored)

    def vector(self, name: str) -> Floats:
        """A vector, float32."""
        return self._file.tensor(f"{name}.weight", (self._hidden,))

    def head(self, table: Stored | Blocks | Floats) -> Stored | Blocks | Floats:
        """The output matrix: the embedding where the file has none."""
        if "output.weight" not in self._file.tensor_names():
            return table
        return self.matrix("output", (table.shape[0], table.shape[1]))

    def stacked(self, number: int, fields: Sequence[str]) -> Stored | Blocks | Floats:
        """Matrices of a layer that have the same inputs, as one; float32 if their types differ."""
        named = []
        for field in fields:
            stored, shape = self._shapes[field]
            named.append((f"blk.{number}.{stored}", (shape[0], shape[1])))
        parts = [self._stored(name, shape) for name, shape in named]
        kinds = {part.kind if part else "" for part in parts}
        if len(kinds) == 1 and "" not in kinds:
            rows = np.concatenate([part.rows for part in parts if part])
            return self._form(Stored(kinds.pop(), rows))
        return np.concatenate([self._file.tensor(f"{name}.weight", shape) for name, shape in named])

    def norm(self, number: int, field: str) -> Floats:
        """A norm of a layer."""
        return self.vector(f"blk.{number}.{self._shapes[field][0]}")

    def multiply(
        self, graph: Builder, x: str, weight: Stored | Blocks | Floats, name: str, kept: str = ""
    ) -> str:
        """x (..., inputs) times the transpose of a matrix that the graph has as `kept`."""
        kept = kept or name
        if not isinstance(weight, Stored):
            return multiply(graph, x, weight, name, self._precision, kept)
        assert self._linear is not None
        return self._linear.multiply(graph, x, weight, name, kept)

    def look_up(
        self, graph: Builder, tokens: str, table: Stored | Blocks | Floats, name: str
    ) -> str:
        """Rows (1, tokens, hidden) of a table (vocabulary, hidden) that the graph has as `name`."""
        if not isinstance(table, Stored):
            return look_up(graph, tokens, table, name)
        assert self._linear is not None
        return self._linear.look_up(graph, tokens, table, name)


def _rope_tables(graph: Builder, config: ModelConfig, context: int) -> None:
    cos, sin = rope_table(np.arange(context), config.head_dim, config.rope_base)
    graph.constant("rope_cos", cos)
    graph.constant("rope_sin", sin)


def _norm(graph: Builder, config: ModelConfig, x: str, weight: Floats, name: str) -> str:
    scale = graph.constant(f"{name}.weight", weight)
    return graph.one("SimplifiedLayerNormalization", [x, scale], name, axis=-1, epsilon=config.eps)


def _add_and_norm(
    graph: Builder, config: ModelConfig, x: str, more: str, weight: Floats, name: str
) -> tuple[str, str]:
    """x + more, and its norm."""
    scale = graph.constant(f"{name}.weight", weight)
    normed, _mean, _deviation, added = graph.add(
        "SkipSimplifiedLayerNormalization", [x, more, scale], name, 4, MICROSOFT, epsilon=config.eps
    )
    return added, normed


def _rope(graph: Builder, x: str, heads: int, name: str) -> str:
    return graph.one(
        "RotaryEmbedding",
        [x, "start", "rope_cos", "rope_sin"],
        name,
        MICROSOFT,
        interleaved=1,
        num_heads=heads,
    )


def _layer(
    graph: Builder,
    config: ModelConfig,
    weights: _Weights,
    attention: GraphAttention,
    number: int,
    x: str,
    normed: str,
    after: Floats,
) -> tuple[str, str]:
    """x (1, tokens, hidden) and its norm; the same after the layer, whose norm `after` scales."""
    name = f"layer.{number}"
    qkv = weights.stacked(number, ("query", "key", "value"))
    wide = weights.multiply(graph, normed, qkv, f"{name}.qkv")
    queries, kv = config.query_heads * config.head_dim, config.kv_heads * config.head_dim
    q, k, v = graph.add("Split", [wide, graph.numbers(queries, kv, kv)], f"{name}.split", 3, axis=2)
    q = _rope(graph, q, config.query_heads, f"{name}.q")
    k = _rope(graph, k, config.kv_heads, f"{name}.k")
    attended = attention.layer(graph, config, number, q, k, v)
    mixing = weights.stacked(number, ("attention_output",))
    mixed = weights.multiply(graph, attended, mixing, f"{name}.o")
    norm = weights.norm(number, "ffn_norm")
    x, normed = _add_and_norm(graph, config, x, mixed, norm, f"{name}.ffn_norm")
    both = weights.multiply(
        graph, normed, weights.stacked(number, ("gate", "up")), f"{name}.gate_up"
    )
    gate, up = graph.add(
        "Split", [both, graph.numbers(config.ffn, config.ffn)], f"{name}.halves", 2, axis=2
    )
    silu = graph.one("Mul", [gate, graph.one("Sigmoid", [gate], f"{name}.sigmoid")], f"{name}.silu")
    product = graph.one("Mul", [silu, up], f"{name}.product")
    down = weights.multiply(graph, product, weights.stacked(number, ("down",)), f"{name}.down")
    return _add_and_norm(graph, config, x, down, after, f"{name}.next_norm")
