"""FP8 as vLLM stores KV caches: e4m3fn (largest 448) or e5m2 (57344), one float32 scale.

Formats: Micikevicius and others, arXiv 2209.05433. The scale maps the largest magnitude of a
tensor, or of a head, to the largest number of the format; both as vLLM offers them.
"""

from __future__ import annotations

from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from .base import F32, Codec, Held, Shape


class FP8(Codec):
    """One byte a number, and a float32 scale a head or for the whole tensor.

    scale: "head", "tensor", or "none" for a scale of 1, which is vLLM's default without calibration
    and clips what the format cannot hold.
    """

    paper = "arXiv 2209.05433, table 1; vLLM's fp8 caches"
    granularity = "number, scale a head or tensor"
    claim = "half the memory of fp16"
    label = "corroborated"
    rates = (8.0,)
    dtype: ClassVar[Any]
    #: The largest number of the format.
    top: ClassVar[np.float32]

    def __init__(self, *, scale: str = "head", **common: Any) -> None:
        super().__init__(**common)
        self.scale = self._choice("scale", scale, ("head", "tensor", "none"))

    def _pack(self, x: F32) -> Held:
        top = self.top
        if self.scale == "none":
            return {"codes": np.clip(x, -top, top).astype(self.dtype).view(np.uint8)}
        axes = (1, 2) if self.scale == "head" else (0, 1, 2)
        largest = np.abs(x).max(axis=axes, keepdims=True)
        scales = np.where(largest > 0, largest / top, np.float32(1)).astype(np.float32)
        codes = np.clip(x / scales, -top, top).astype(self.dtype)
        return {"codes": codes.view(np.uint8), "scales": scales}

    def _unpack(self, held: Held, shape: Shape) -> F32:
        numbers: F32 = held["codes"].view(self.dtype).astype(np.float32)
        return numbers * held["scales"] if "scales" in held else numbers


class FP8E4M3(FP8):
    """4 bits of exponent, 3 of mantissa, no infinity."""

    dtype = ml_dtypes.float8_e4m3fn
    top = np.float32(448)


class FP8E5M2(FP8):
    """5 bits of exponent, 2 of mantissa."""

    dtype = ml_dtypes.float8_e5m2
    top = np.float32(57344)
