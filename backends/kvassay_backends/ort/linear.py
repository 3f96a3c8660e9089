"""Products with quantized weights by this project's operator `Linear`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from onnx import TensorProto

from kvassay.models.onnx.linear import BLOCK, Bytes, Stored, unpack
from kvassay.models.onnx.nodes import Builder

from .graphs import DOMAIN
from .onnx_backend import OrtBackend

#: Rows that lie beside each other.
GROUP: Final = 8
#: Bytes of scales and minima before the codes of a block, by row, and of codes.
_HEAD: Final = {"Q4_1": 4, "Q8_0": 2}


@dataclass(frozen=True)
class KvassayLinear:
    """`kvassay.Linear` for matrices of Q4_1 and Q8_0 whose outputs are a multiple of eight."""

    variant: str = ""
    threads: int = 1

    @classmethod
    def of(cls, backend: OrtBackend, threads: int) -> KvassayLinear:
        """Plain C beside the scalar variant, else the best there is."""
        return cls("scalar" if backend.variant == "scalar" else "", threads)

    def domains(self) -> dict[str, int]:
        """Operator domains it uses, with their versions."""
        return {DOMAIN: 1}

    def accepts(self, matrix: Stored) -> bool:
        """Whether it multiplies by a matrix of this type and shape."""
        return matrix.kind in _HEAD and matrix.shape[0] % GROUP == 0

    def multiply(self, graph: Builder, x: str, matrix: Stored, name: str, kept: str) -> str:
        """x (..., inputs) times the transpose of a matrix that the graph has as `kept`."""
        given: dict[str, Any] = {"type": matrix.kind.lower(), "threads": self.threads}
        rows = self._kept(graph, matrix, kept)
        return graph.one("Linear", [x, rows], name, DOMAIN, variant=self.variant, **given)

    def _kept(self, graph: Builder, matrix: Stored, kept: str) -> str:
        name = f"{kept}.grouped"
        return name if name in graph.initializers else graph.constant(name, grouped(matrix))

    def look_up(self, graph: Builder, tokens: str, matrix: Stored, name: str) -> str:
        """Rows (1, tokens, inputs) of a matrix of Q8_0 that the graph has as `name`, by token.

        A group of eight rows is taken and turned, and then the row that was asked for.
        """
        inputs, head = matrix.shape[1], GROUP * _HEAD["Q8_0"]
        blocks, size = inputs // BLOCK, head + GROUP * BLOCK
        eight = graph.numbers(GROUP)
        group = graph.one("Div", [tokens, eight], f"{name}.group")
        rows = graph.one("Gather", [self._kept(graph, matrix, name), group], f"{name}.rows")
        parts = graph.reshape(rows, f"{name}.parts", -1, blocks, size)
        codes = graph.one(
            "Slice",
            [parts, graph.numbers(head), graph.numbers(size), graph.numbers(2)],
            f"{name}.codes",
        )
        fours = graph.reshape(codes, f"{name}.fours", -1, blocks, BLOCK // 4, GROUP, 4)
        turned = graph.one("Transpose", [fours], f"{name}.turned", perm=[0, 3, 1, 2, 4])
        row = graph.one("Mod", [tokens, eight], f"{name}.row")
        at = graph.one("Unsqueeze", [row, graph.numbers(1)], f"{name}.at")
        own = graph.one("GatherND", [turned, at], f"{name}.own", batch_dims=1)
        signed = graph.one("Cast", [own], f"{name}.signed", to=TensorProto.INT8)
        numbers = graph.one("Cast", [signed], f"{name}.numbers", to=TensorProto.FLOAT)
        scale = graph.constant(f"{name}.scale", unpack(matrix).scale[..., None, None])
        scales = graph.one("Gather", [scale, tokens], f"{name}.scales")
        scaled = graph.one("Mul", [numbers, scales], f"{name}.scaled")
        return graph.reshape(scaled, name, 1, -1, inputs)


def grouped(matrix: Stored) -> Bytes:
    """Rows in groups of eight (src/linear/linear.h): uint8 (outputs / 8, bytes)."""
    blocks = matrix.blocks()
    outputs, count = blocks.shape[:2]
    head = _HEAD[matrix.kind]
    eight = blocks.reshape(outputs // GROUP, GROUP, count, -1).transpose(0, 2, 1, 3)
    halves = eight[..., :head].reshape(*eight.shape[:3], head // 2, 2).swapaxes(2, 3)
    codes = eight[..., head:].reshape(*eight.shape[:3], -1, 4).swapaxes(2, 3)
    parts = [part.reshape(outputs // GROUP, count, -1) for part in (halves, codes)]
    return np.concatenate(parts, axis=-1).reshape(outputs // GROUP, -1)
