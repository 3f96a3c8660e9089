"""Matrix products with weights as a GGUF file stores them.

By ONNX Runtime's MatMulNBits, or by an operator that reads the bytes of the file (`GraphLinear`).

Q4_1 blocks hold w = d q + m with q in 0 .. 15. ONNX Runtime multiplies by symmetric codes fast,
with (q - 8) d, but has no fast path for zero points that are not integers. So the rest, m + 8 d, is
added by blocks: times the sum of the block's inputs. Q8_0 blocks hold w = d q and have no rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from kvassay.errors import ModelError
from kvassay.models.gguf_file import GGUFFile

from .nodes import MICROSOFT, Builder

#: "stored": codes as they are, inputs in float32. "int8": codes as they are, inputs rounded to
#: 8 bits by blocks of 32. "float32": weights dequantized.
Precision = Literal["stored", "int8", "float32"]

BLOCK: Final = 32
#: MatMulNBits: what inputs are rounded to; 1 is float32, 4 is int8.
_ACCURACY: Final = {"stored": 1, "int8": 4}

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

#: Bytes of a block of 32 by the container's name of its type.
BLOCK_BYTES: Final = {"Q4_1": 20, "Q8_0": 34}


@dataclass(frozen=True)
class Stored:
    """A matrix in the bytes of its file: uint8 (outputs, bytes of a row)."""

    kind: str
    rows: Bytes

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)."""
        return len(self.rows), self.rows.shape[1] // BLOCK_BYTES[self.kind] * BLOCK

    def blocks(self) -> Bytes:
        """(outputs, blocks, bytes of a block)."""
        return self.rows.reshape(len(self.rows), -1, BLOCK_BYTES[self.kind])


class GraphLinear(Protocol):
    """Adds a product with a stored matrix to a graph."""

    def domains(self) -> dict[str, int]:
        """Operator domains it uses, with their versions."""

    def accepts(self, matrix: Stored) -> bool:
        """Whether it multiplies by a matrix of this type and shape."""

    def multiply(self, graph: Builder, x: str, matrix: Stored, name: str, kept: str) -> str:
        """x (..., inputs) times the transpose of a matrix that the graph has as `kept`; `name`."""

    def look_up(self, graph: Builder, tokens: str, matrix: Stored, name: str) -> str:
        """Rows (1, tokens, inputs) of a matrix that the graph has as `name`, by token."""


def read_stored(file: GGUFFile, name: str, shape: tuple[int, int]) -> Stored | None:
    """A tensor of a type in `BLOCK_BYTES`, None for any other.

    Raises ModelError if the tensor is missing or its bytes are not of that shape.
    """
    kind, raw = file.stored(name, shape)
    return Stored(kind, raw.reshape(shape[0], -1)) if kind in BLOCK_BYTES else None


@dataclass(frozen=True)
class Blocks:
    """A matrix (outputs, inputs) in blocks of 32: w = scale * (code - zero) + rest.

    codes uint8 (outputs, blocks, 32) of `bits` bits; zero is half their range; scale and rest
    float32 (outputs, blocks), rest None where it is zero.
    """

    bits: int
    codes: Bytes
    scale: Floats
    rest: Floats | None

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)."""
        return len(self.codes), self.codes.shape[1] * BLOCK

    def packed(self) -> Bytes:
        """Codes as MatMulNBits reads them: two 4-bit codes a byte, the even one low."""
        if self.bits == 8:
            return self.codes
        return np.asarray(self.codes[..., 0::2] | self.codes[..., 1::2] << 4, np.uint8)


def unpack(stored: Stored) -> Blocks:
    """Codes, scales and rests of a stored matrix."""
    rows = stored.blocks()
    if stored.kind == "Q4_1":
        d, m = (_halves(rows[..., at : at + 2]) for at in (0, 2))
        nibbles = rows[..., 4:]
        codes = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)
        return Blocks(4, codes, d, m + np.float32(8) * d)
    codes = (rows[..., 2:].view(np.int8).astype(np.int16) + 128).astype(np.uint8)
    return Blocks(8, codes, _halves(rows[..., :2]), None)


def _halves(raw: Bytes) -> Floats:
    """fp16 bytes (..., 2) as float32."""
    return np.ascontiguousarray(raw).view("<f2")[..., 0].astype(np.float32)


def multiply(
    graph: Builder, x: str, weight: Blocks | Floats, name: str, precision: Precision, kept: str
) -> str:
    """x (..., inputs) times the transpose of a matrix (outputs, inputs), by ONNX Runtime.

    kept: name of the matrix, by which several nodes may have it.
    """
    if not isinstance(weight, Blocks):
        return graph.one("MatMul", [x, graph.constant(f"{kept}.transposed", weight.T)], name)
    if precision == "float32":
        raise ModelError(f"{name}: blocks are multiplied as they are stored")
    outputs, inputs = weight.shape
    given: dict[str, Any] = {"N": outputs, "K": inputs, "bits": weight.bits, "block_size": BLOCK}
    given["accuracy_level"] = _ACCURACY[precision]
    codes = graph.constant(f"{kept}.codes", weight.packed())
    scale = graph.constant(f"{kept}.scale", weight.scale)
    if weight.rest is None:
        return graph.one("MatMulNBits", [x, codes, scale], name, MICROSOFT, **given)
    symmetric = graph.one(
        "MatMulNBits", [x, codes, scale], f"{name}.codes_part", MICROSOFT, **given
    )
    sums = block_sums(graph, x, inputs // BLOCK)
    rest = graph.constant(f"{kept}.rest", weight.rest.T)
    return graph.one(
        "Add", [symmetric, graph.one("MatMul", [sums, rest], f"{name}.rest_part")], name
    )


def block_sums(graph: Builder, x: str, blocks: int) -> str:
    """Sums of the blocks of x (tokens, blocks * 32)."""
    parts = graph.reshape(x, f"{x}.blocks", -1, blocks, BLOCK)
    return graph.one("ReduceSum", [parts, graph.numbers(2)], f"{x}.sums", keepdims=0)


def look_up(graph: Builder, tokens: str, table: Blocks | Floats, name: str) -> str:
    """Rows (1, tokens, hidden) of a table (vocabulary, hidden) by token."""
    hidden = table.shape[1]
    if not isinstance(table, Blocks):
        rows = graph.one("Gather", [graph.constant(f"{name}.table", table), tokens], f"{name}.rows")
        return graph.reshape(rows, name, 1, -1, hidden)
    if table.rest is not None:
        raise ModelError(f"{name}: a table with minima is looked up as float32")
    codes = graph.constant(f"{name}.codes", table.packed())
    rows = graph.one("Gather", [codes, tokens], f"{name}.rows")
    numbers = graph.one("Cast", [rows], f"{name}.numbers", to=TensorProto.FLOAT)
    zero = graph.constant("zero_8", np.array(128, np.float32))
    signed = graph.one("Sub", [numbers, zero], f"{name}.signed")
    scale = graph.constant(f"{name}.scale", table.scale)
    scales = graph.one("Gather", [scale, tokens], f"{name}.scales")
    column = graph.one("Unsqueeze", [scales, graph.numbers(2)], f"{name}.column")
    scaled = graph.one("Mul", [signed, column], f"{name}.scaled")
    return graph.reshape(scaled, name, 1, -1, hidden)
