"""Matrix products with weights as a GGUF file stores them.

Q4_1 blocks hold w = d q + m with q in 0 .. 15. ONNX Runtime multiplies by symmetric codes fast,
with (q - 8) d, but has no fast path for zero points that are not integers. So the rest, m + 8 d, is
added by blocks: times the sum of the block's inputs. Q8_0 blocks hold w = d q and have no rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

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

    @classmethod
    def stacked(cls, parts: Sequence[Blocks]) -> Blocks:
        """Matrices with the same inputs as one."""
        rests = [part.rest for part in parts]
        return cls(
            parts[0].bits,
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.scale for part in parts]),
            None if rests[0] is None else np.concatenate([r for r in rests if r is not None]),
        )

    def packed(self) -> Bytes:
        """Codes as MatMulNBits reads them: two 4-bit codes a byte, the even one low."""
        if self.bits == 8:
            return self.codes
        return np.asarray(self.codes[..., 0::2] | self.codes[..., 1::2] << 4, np.uint8)


def read_blocks(file: GGUFFile, name: str, shape: tuple[int, int]) -> Blocks | None:
    """The blocks of a tensor of type Q4_1 or Q8_0, None for any other type.

    Raises ModelError if the tensor is missing or its bytes are not of that shape.
    """
    kind, raw = file.stored(name, shape)
    outputs, blocks = shape[0], shape[1] // BLOCK
    if kind == "Q4_1":
        rows = raw.reshape(outputs, blocks, 20)
        d, m = (_halves(rows[..., at : at + 2]) for at in (0, 2))
        nibbles = rows[..., 4:]
        codes = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)
        return Blocks(4, codes, d, m + np.float32(8) * d)
    if kind == "Q8_0":
        rows = raw.reshape(outputs, blocks, 34)
        codes = (rows[..., 2:].view(np.int8).astype(np.int16) + 128).astype(np.uint8)
        return Blocks(8, codes, _halves(rows[..., :2]), None)
    return None


def _halves(raw: Bytes) -> Floats:
    """fp16 bytes (..., 2) as float32."""
    return np.ascontiguousarray(raw).view("<f2")[..., 0].astype(np.float32)


def multiply(
    graph: Builder,
    x: str,
    weight: Blocks | Floats,
    name: str,
    precision: Precision,
    shared: str = "",
) -> str:
    """x (tokens, inputs) times the transpose of a matrix (outputs, inputs).

    shared: name of the matrix where another node has it too.
    """
    kept = shared or name
    if not isinstance(weight, Blocks):
        matrix = graph.constant(f"{kept}.table", weight)
        return graph.one("Gemm", [x, matrix], name, transB=1)
    if precision == "float32":
        raise ModelError(f"{name}: blocks are multiplied as they are stored")
    outputs, inputs = weight.shape
    given: dict[str, Any] = {"N": outputs, "K": inputs, "bits": weight.bits, "block_size": BLOCK}
    codes = graph.constant(f"{kept}.codes", weight.packed())
    scale = graph.constant(f"{kept}.scale", weight.scale)
    product = "MatMulNBits"
    accuracy = _ACCURACY[precision]
    if weight.rest is None:
        return graph.one(
            product, [x, codes, scale], name, MICROSOFT, accuracy_level=accuracy, **given
        )
    symmetric = graph.one(
        product,
        [x, codes, scale],
        f"{name}.codes_part",
        MICROSOFT,
        accuracy_level=accuracy,
        **given,
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
    """Rows of a table (vocabulary, hidden) by token."""
    if not isinstance(table, Blocks):
        return graph.one("Gather", [graph.constant(f"{name}.table", table), tokens], name)
    if table.rest is not None:
        raise ModelError(f"{name}: a table with minima is looked up as float32")
    codes = graph.constant(f"{name}.codes", table.packed())
    rows = graph.one("Gather", [codes, tokens], f"{name}.rows")
    numbers = graph.one("Cast", [rows], f"{name}.numbers", to=1)
    zero = graph.constant("zero_8", np.array(128, np.float32))
    signed = graph.one("Sub", [numbers, zero], f"{name}.signed")
    scale = graph.constant(f"{name}.scale", table.scale)
    scales = graph.one("Gather", [scale, tokens], f"{name}.scales")
    column = graph.one("Unsqueeze", [scales, graph.numbers(2)], f"{name}.column")
    scaled = graph.one("Mul", [signed, column], f"{name}.scaled")
    return graph.reshape(scaled, name, -1, table.shape[1])
