"""Distortion of each codec, through the backend's own read path, against theory."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

import kvassay
from kvassay.records import Record

from ..common import MATH, record
from ..common_inputs import tokens
from .ideal import distortion, query_noise
from .readout import KV_HEADS, PAGE, plain_spec, read_keys, read_values

PAGES: Final = 6


def _vnmse(x: NDArray[np.floating], x_hat: NDArray[np.float64]) -> float:
    """Mean over vectors of |x - x_hat|^2 / |x|^2."""
    exact = x.astype(np.float64)
    return float(np.mean(np.sum((exact - x_hat) ** 2, -1) / np.sum(exact**2, -1)))


def measure(
    backend: str, variant: str, stream: str, codec: str, head_dims: list[int]
) -> list[Record]:
    """Measured over expected vNMSE: near 1, or the decoder or the bill is wrong."""
    loaded = kvassay.load(backend, variant)
    records = []
    for d in head_dims:
        count = PAGES * PAGE
        window = -(-count // 16)
        k, v = tokens("gaussian", d, count + window, KV_HEADS, d)
        if stream == "keys":
            spec = plain_spec(d, keys=codec)
            found = _vnmse(k[:count], read_keys(loaded, spec, k[:count], v[:count]))
            expected = distortion(stream, codec, d) + query_noise(codec)
        else:
            spec = plain_spec(d, values=codec, window=window)
            found = _vnmse(v[:count], read_values(loaded, spec, k, v, count))
            expected = distortion(stream, codec, d)
        records.append(
            record(
                "correctness.distortion_ratio",
                MATH,
                backend,
                variant,
                found / expected,
                "of theory",
                count * KV_HEADS,
                subject=f"{stream} {codec} d{d}",
                detail={"measured": found, "expected": expected},
            )
        )
    return records
