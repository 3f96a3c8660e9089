"""Distortion of each codec, through the backend's own read path, against theory."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

import kvassay
from kvassay.page.costs import Costs
from kvassay.records import Record

from ..common.inputs import tokens
from ..common.specs import MATH, record
from .ideal import distortion, query_noise
from .readout import KV_HEADS, PAGE, plain_spec, read_keys, read_values

PAGES: Final = 6


def _vnmse(x: NDArray[np.floating], x_hat: NDArray[np.float64]) -> tuple[float, float]:
    """Mean over vectors of |x - x_hat|^2 / |x|^2, and half its normal interval of 95 %."""
    exact = x.astype(np.float64)
    each = np.sum((exact - x_hat) ** 2, -1) / np.sum(exact**2, -1)
    return float(np.mean(each)), 1.96 * float(np.std(each)) / each.size**0.5


def _page_bits(spec: kvassay.Spec) -> float:
    """Bits a value of the stream that is not fp16: everything in the page but the other stream.

    fp16 values take 16 of the two streams' bits, and nothing else.
    """
    return 2 * Costs.of(spec).page_bits - 16


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
            found, half = _vnmse(k[:count], read_keys(loaded, spec, k[:count], v[:count]))
            expected = distortion(stream, codec, d) + query_noise(codec)
        else:
            spec = plain_spec(d, values=codec, window=window)
            found, half = _vnmse(v[:count], read_values(loaded, spec, k, v, count))
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
                detail={
                    "measured": found,
                    "low": found - half,
                    "high": found + half,
                    "expected": expected,
                    "page_bits": _page_bits(spec),
                },
            )
        )
    return records
