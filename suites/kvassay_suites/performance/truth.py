"""What a timed call must have computed: a fast kernel whose output is wrong gives no number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import kvassay
from kvassay.protocol import Backend, FloatArray
from kvassay.registry import REFERENCE

from .work import Owner, Shape, checksum, filled, tokens_of


@dataclass(frozen=True)
class Checked:
    """Checksum of an output, that of the right one, and what is wrong with it, "" if nothing."""

    output: str
    expected: str
    wrong: str

    @property
    def detail(self) -> dict[str, Any]:
        """For a record."""
        said = {"output": self.output, "expected": self.expected}
        return {**said, "reason": self.wrong} if self.wrong else said

    def count(self, comparisons: int) -> int:
        """Comparisons that a figure rests on: none where the output is wrong."""
        return 0 if self.wrong else comparisons

    def value(self, figure: float) -> float:
        """The figure, or no number where the output is wrong."""
        return math.nan if self.wrong else figure


def check(loaded: Backend, whose: Owner, preset: str, *outputs: FloatArray) -> Checked:
    """Outputs of attention over the suite's tokens, of its first query or of all, held to the
    reference: to the bit, or within the bound that the backend declares.
    """
    truth = [expected(preset, whose.tokens, whose.shape, len(out.shape) == 2) for out in outputs]
    wrong = (_fault(loaded, *pair) for pair in zip(outputs, truth, strict=True))
    return Checked(
        output=" ".join(map(checksum, outputs[:1])),
        expected=" ".join(map(checksum, truth[:1])),
        wrong=next(filter(None, wrong), ""),
    )


@cache
def expected(preset: str, tokens: int, shape: Shape, single: bool) -> FloatArray:
    """What the reference returns for the first query (query_heads, head_dim), or for all."""
    k, v, q = tokens_of(shape, tokens)
    with filled(kvassay.load(REFERENCE), shape.spec(preset), k, v) as reference:
        return reference.attend(0, q[0] if single else q)


def _fault(loaded: Backend, out: FloatArray, truth: FloatArray) -> str:
    if out.shape != truth.shape:
        return f"the output has shape {out.shape}, not {truth.shape}"
    if loaded.exact:
        differing = int(np.count_nonzero(out.view(np.uint32) != truth.view(np.uint32)))
        return f"{differing} of {out.size} floats differ from the reference" if differing else ""
    error = float(np.linalg.norm(out - truth) / np.linalg.norm(truth))
    bound = loaded.bound or 0.0
    return "" if error <= bound else f"relative error {error:.3g}, where {bound:.3g} is declared"
