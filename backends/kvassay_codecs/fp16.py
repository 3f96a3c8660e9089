"""fp16: the baseline that every other codec is compared with (IEEE 754 binary16)."""

from __future__ import annotations

import numpy as np

from .base import F32, Codec, Held, Shape, f32


class FP16(Codec):
    """Two bytes a number."""

    paper = "IEEE 754 binary16"
    granularity = "number"
    claim = "none: the baseline"
    rates = (16.0,)

    def _pack(self, x: F32) -> Held:
        return {"numbers": x.astype(np.float16)}

    def _unpack(self, held: Held, shape: Shape) -> F32:
        return f32(held["numbers"])
