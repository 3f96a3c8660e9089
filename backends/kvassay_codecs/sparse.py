"""Numbers kept apart from codes: a u8 count a vector, and (u8 channel, fp16) for each number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import F32, U8, Held, f32


@dataclass(frozen=True)
class Sparse:
    """counts (heads, tokens); channels and values of all of them, in order."""

    counts: U8
    channels: U8
    values: NDArray[np.float16]

    @classmethod
    def of(cls, rows: F32, mask: NDArray[Any]) -> Sparse:
        """The numbers of rows (heads, tokens, d <= 256) under the mask, at most 255 a vector."""
        counts = np.minimum(mask.sum(axis=2), 255)
        mask = mask & (np.cumsum(mask, axis=2) <= 255)
        return cls(
            counts.astype(np.uint8),
            np.nonzero(mask)[2].astype(np.uint8),
            rows[mask].astype(np.float16),
        )

    @classmethod
    def read(cls, held: Held) -> Sparse:
        """From the arrays of an encoded tensor."""
        return cls(held["sparse counts"], held["sparse channels"], held["sparse values"])

    @property
    def arrays(self) -> Held:
        """The arrays to hold."""
        return {
            "sparse counts": self.counts,
            "sparse channels": self.channels,
            "sparse values": self.values,
        }

    def put(self, rows: F32) -> None:
        """Write the numbers into rows (heads, tokens, d)."""
        flat = rows.reshape(-1, rows.shape[2])
        vector = np.repeat(np.arange(len(flat)), self.counts.ravel())
        flat[vector, self.channels] = f32(self.values)
