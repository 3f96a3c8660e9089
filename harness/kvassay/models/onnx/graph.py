"""The graph of a Llama-architecture model (docs/onnxruntime.md, "A decoder")."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from onnx import ModelProto, TensorProto, helper

from kvassay.models.config import ModelConfig
from kvassay.models.functions import rope_table
from kvassay.models.gguf_file import GGUFFile
from kvassay.models.loading import ROPE_FACTORS, layer_shapes, read_config

from .attention import GraphAttention
from .linear import Blocks, Floats, Precision, look_up, multiply, read_blocks
from .nodes import MICROSOFT, Builder

OPSET: Final = 17
IR_VERSION: Final = 8


def build(
    path: str | Path, attention: GraphAttention, precision: Precision = "int8", context: int = 0
) -> tuple[ModelProto, ModelConfig]:
    """A model whose output is logits float32 (1, vocabulary) of the last token.

    Its inputs, besides those of the attention: tokens int64 (tokens,) and start int64 (1,), the
    position of the first. context: positions that RoPE is tabulated for, 0 for the model's. Raises
    ModelError for a file that is damaged or of another architecture.
    """
    file = GGUFFile(path)
    config, _ = read_config(file)
    if config.architecture != "llama" or config.rope_divisor != 1:
        raise file.error(f"no graph for {config.architecture} or for scaled RoPE; supported: llama")
    if ROPE_FACTORS in file.tensor_names():
        raise file.error(f"no graph for a model with the tensor {ROPE_FACTORS!r}")
    weights = _Reader(file, config, precision)
    graph = Builder()
    tokens = graph.input("tokens", TensorProto.INT64, ["n"])
    graph.input("start", TensorProto.INT64, [1])
    attention.inputs(graph, config)
    _rope_tables(graph, config, context or config.context)
    table = weights.matrix("token_embd", (config.vocab, config.hidden))
    x = look_up(graph, tokens, table, "embedding")
    for number in range(config.layers):
        x = _layer(graph, config, weights, attention, number, x)
    last = graph.one("Gather", [x, graph.numbers(-1)], "last")
    normed = _norm(graph, config, last, weights.vector("output_norm"), "last_norm")
    head = weights.head(table)
    shared = "embedding" if head is table else ""
    multiply(graph, normed, head, "logits", weights.precision, shared)
    graph.output("logits", TensorProto.FLOAT, [1, config.vocab])
    domains = {"": OPSET, MICROSOFT: 1, **attention.domains()}
    opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    made = helper.make_model(graph.graph(config.name), opset_imports=opsets, ir_version=IR_VERSION)
    return made, config


class _Reader:
    """Weights of a file in the precision that was asked for."""

    def __init__(self, file: GGUFFile, config: ModelConfig, precision: Precision) -> None:
        self._file = file
        self._hidden = config.hidden
        self._shapes = layer_shapes(config)
        self.precision: Precision = precision

    def matrix(self, name: str, shape: tuple[int, int]) -> Blocks | Floats:
        """A matrix as stored where it is in blocks and not wanted as float32."""
        stored = f"{name}.weight"
        blocks = None
        if self.precision != "float32":
            blocks = read_blocks(self._file, stored, shape)
        return self._file.tensor(stored, shape) if blocks is None else blocks

    def vector(self, name: str) -> Floats:
        """A vector, float32."""
        return self._file.tensor(f"{name}.weight", (self._hidden,))

    def head(self, table: Blocks | Floats) -> Blocks | Floats:
        """The output matrix: the embedding where the file has none."""
        name = "output"
        if f"{name}.weight" not in self._file.tensor_names():
            return table
        rows = table.shape
        return self.matrix(name, (rows[0], rows[1]))

    def stacked(self, number: int, fields: Sequence[str]) -> Blocks | Floats:
        """Matrices of a layer that have the same inputs, as one."""
        parts = []
        for field in fields:
            stored, shape = self._shapes[field]
            parts.append(self.matrix(f"blk.{number}.{stored}", (shape[0], shape[1])))
        blocks = [part for part in parts if isinstance(part, Blocks)]
        if len(blocks) == len(parts):
            return blocks[0] if len(blocks) == 1 else Blocks.stacked(blocks)
        return np.concatenate([part for part in parts if not isinstance(part, Blocks)])

    def norm(self, number: int, field: str) -> Floats:
        """A norm of a layer."""
        return self.vector(f"blk.{number}.{self._shapes[field][0]}")


def _rope_tables(graph: Builder, config: ModelConfig, context: int) -> None:
    cos, sin = rope_table(np.arange(context), config.head_dim, config.rope_base)
    graph.constant("rope_cos", cos)
    graph.constant("rope_sin", sin)


def _norm(graph: Builder, config: ModelConfig, x: str, weight: Floats, name: str) -> str:
    scale = graph.constant(f"{name}.weight", weight)
    return graph.one("SimplifiedLayerNormalization", [x, scale], name, axis=-1, epsilon=config.eps)


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
    weights: _Reader,
    attention: GraphAttention,
    number: int,
    x: str,
) -> str:
    name = f"layer.{number}"
    normed = _norm(graph, config, x, weights.norm(number, "attention_norm"), f"{name}.norm")
    projected = multiply(
        graph,
        normed,
        weights.stacked(number, ("query", "key", "value")),
        f"{name}.qkv",
        weights.precision,
    )
    queries, kv = config.query_heads * config.head_dim, config.kv_heads * config.head_dim
    wide = graph.reshape(projected, f"{name}.qkv.batch", 1, -1, queries + 2 * kv)
    q, k, v = graph.add("Split", [wide, graph.numbers(queries, kv, kv)], f"{name}.split", 3, axis=2)
    q = _rope(graph, q, config.query_heads, f"{name}.q")
    k = _rope(graph, k, config.kv_heads, f"{name}.k")
    attended = attention.layer(graph, config, number, q, k, v)
    mixed = multiply(
        graph,
        attended,
        weights.stacked(number, ("attention_output",)),
        f"{name}.o",
        weights.precision,
    )
    x = graph.one("Add", [x, mixed], f"{name}.mid")
    normed = _norm(graph, config, x, weights.norm(number, "ffn_norm"), f"{name}.ffn_norm")
    both = multiply(
        graph, normed, weights.stacked(number, ("gate", "up")), f"{name}.gate_up", weights.precision
    )
    gate, up = graph.add(
        "Split", [both, graph.numbers(config.ffn, config.ffn)], f"{name}.halves", 2, axis=1
    )
    silu = graph.one("Mul", [gate, graph.one("Sigmoid", [gate], f"{name}.sigmoid")], f"{name}.silu")
    product = graph.one("Mul", [silu, up], f"{name}.product")
    down = multiply(
        graph, product, weights.stacked(number, ("down",)), f"{name}.down", weights.precision
    )
    return graph.one("Add", [x, down], f"{name}.out")
