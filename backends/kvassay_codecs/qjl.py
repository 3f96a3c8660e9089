"""QJL: Zandieh, Daliri, Han, arXiv 2406.03482.

Keys: signs of m random projections and the norm; <q, k> ~ sqrt(pi/2) / m * |k| * <S q, sign(S k)>
(Definition 3.1, Lemma 3.2: unbiased). The official code takes the channels of largest norm out of
every 32 tokens and gives them a sketch and a norm of their own. Values: 2-bit min-max in groups of
32 channels.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from . import minmax
from .base import F32, U8, Codec, Held, Shape, f16, f32
from .packing import pack, unpack
from .rotations import generator

GROUP: Final = 32
_INLIERS, _OUTLIERS = 2, 3  # random streams


class QJL(Codec):
    """Keys: m = bits * d signs and fp16 |k|; with outlier channels, for each 32 tokens their u8
    indices, and a sketch and a norm a token. Values: 2 bits, fp16 step and minimum a group of 32.

    outlier_channels: taken out of every 32 tokens, 8 in the official code, 0 for the plain
    estimator. outlier_sketch: projections of the outlier part. Two bits at head dim 128 are the
    official m = 256.
    """

    paper = "arXiv 2406.03482, Definition 3.1"
    granularity = "vector; outlier channels by 32 tokens; values by 32 channels"
    claim = "3 bits without loss of accuracy, over five times less memory"
    rates = (2.0, 1.0, 3.0, 4.0)

    def __init__(
        self, *, outlier_channels: int = 8, outlier_sketch: int = 64, **common: Any
    ) -> None:
        super().__init__(**common)
        if self.role == "value" and self.bits != 2:
            raise self._refuse(f"bits {self.bits:g}: values are stored with 2; give bits=2")
        self.outlier_channels = self._integer(
            "outlier_channels", outlier_channels, 0, self.head_dim // 2
        )
        self.outlier_sketch = self._integer("outlier_sketch", outlier_sketch, 8, 1024)
        self.sketch = int(self.bits * self.head_dim)

    def _pack(self, x: F32) -> Held:
        if self.role == "value":
            return minmax.encode_tokens(x, 2, GROUP)
        if not self.outlier_channels:
            return self._sketch("", x, self._projection(_INLIERS, self.sketch))
        where = _largest_channels(x, self.outlier_channels)
        mask = self._mask(where, x.shape[1])
        return {
            "outlier channels of groups": where,
            **self._sketch("", np.where(mask, 0, x), self._projection(_INLIERS, self.sketch)),
            **self._sketch(
                "outlier ",
                np.where(mask, x, 0),
                self._projection(_OUTLIERS, self.outlier_sketch),
            ),
        }

    def _unpack(self, held: Held, shape: Shape) -> F32:
        """The linear estimate: <q, x_hat> is the estimator's product for every q."""
        if self.role == "value":
            return minmax.decode_tokens(held, 2, GROUP, shape)
        inliers = self._read("", held, self._projection(_INLIERS, self.sketch))
        if not self.outlier_channels:
            return inliers
        # Each sketch estimates a vector that is zero elsewhere: what it says there is dropped.
        outliers = self._read("outlier ", held, self._projection(_OUTLIERS, self.outlier_sketch))
        mask = self._mask(held["outlier channels of groups"], shape[1])
        return np.where(mask, outliers, inliers)

    def _projection(self, stream: int, rows: int) -> F32:
        """S, (rows, d), independent N(0, 1)."""
        random = generator(self.seed, self.head_dim, stream)
        return random.standard_normal((rows, self.head_dim)).astype(np.float32)

    def _sketch(self, prefix: str, x: F32, projection: F32) -> Held:
        return {
            f"{prefix}signs": pack((x @ projection.T >= 0).astype(np.uint8), 1),
            f"{prefix}norms": f16("a norm", np.linalg.norm(x, axis=-1)),
        }

    def _read(self, prefix: str, held: Held, projection: F32) -> F32:
        rows = len(projection)
        signs = unpack(held[f"{prefix}signs"], 1, rows).astype(np.float32) * 2 - 1
        gain = np.float32(math.sqrt(math.pi / 2) / rows)
        out: F32 = (signs @ projection) * (gain * f32(held[f"{prefix}norms"]))[..., np.newaxis]
        return out

    def _mask(self, where: U8, tokens: int) -> Any:
        """(heads, tokens, d): which channels are outliers."""
        mask = np.zeros((*where.shape[:2], self.head_dim), np.bool_)
        np.put_along_axis(mask, where.astype(np.intp), True, axis=-1)
        return np.repeat(mask, GROUP, axis=1)[:, :tokens]


def _largest_channels(x: F32, count: int) -> U8:
    """(heads, groups, count): the channels of largest norm in every 32 tokens."""
    energy = np.add.reduceat(x * x, np.arange(0, x.shape[1], GROUP), axis=1)
    return np.argpartition(energy, -count, axis=-1)[..., -count:].astype(np.uint8)
