"""turbo: rotate, code every channel by an integer codebook, store one scale a vector (section
5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvassay.streams import Codec

from .arithmetic import F32, const, d16, f32, single
from .codebook import Span, spans
from .scales import Scales, store_scales
from .transform import Transform, store_gain


@dataclass(frozen=True)
class Coded:
    """Vectors (heads, tokens, d) as codes uint8 and scales; `signs` and `norms` only with
    `+qjl`."""

    codes: NDArray[np.uint8]
    scales: Scales
    signs: NDArray[np.uint8] | None = None
    norms: Scales | None = None


def encode(
    codec: Codec, r: F32, transform: Transform, kind: str, projection: Transform | None, keys: bool
) -> Coded:
    """Code r (heads, tokens, d). Keys get the unbiased scale, values and `+qjl` keys the
    least-squares one."""
    y = transform.forward(r)
    store = store_gain(transform.exponent)
    books = spans(codec, r.shape[-1])
    n2 = d16(y, y)
    codes = _codes(y, n2, books)
    c = f32(decode(codes, books))
    zero = n2 == 0
    e = np.where(zero, np.float32(1), d16(y, c))
    if keys and projection is None:
        s = single(single(n2 / e) * store)
    else:
        s = single(single(e / d16(c, c)) * store)
    scales = store_scales(kind, np.where(zero, np.float32(0), s))
    if projection is None:
        return Coded(codes, scales)
    read_back = single(scales.factor * scales.unit[..., np.newaxis])
    sy = single(read_back * np.float32(1 / store))
    residual = single(y - single(sy[..., np.newaxis] * c))
    signs = (projection.forward(residual) >= 0).astype(np.uint8)
    norm = single(np.sqrt(d16(residual, residual)) * store)
    return Coded(codes, scales, signs, store_scales(kind, norm))


def _codes(y: F32, n2: F32, books: tuple[Span, ...]) -> NDArray[np.uint8]:
    sigma = single(np.sqrt(single(n2 * const(1 / y.shape[-1]))))[..., np.newaxis]
    codes = np.empty(y.shape, np.uint8)
    for span in books:
        part = y[..., span.channels]
        m = np.zeros(part.shape, np.uint8)
        for threshold in span.thresholds:
            m += np.abs(part) >= single(threshold * sigma)
        half = np.uint8(1 << (span.bits - 1))
        coded = np.where(part < 0, half - np.uint8(1) - m, half + m)
        codes[..., span.channels] = np.where(n2[..., np.newaxis] == 0, half, coded)
    return codes


def decode(codes: NDArray[np.uint8], books: tuple[Span, ...]) -> NDArray[np.int32]:
    """The integer centroids of codes (..., d)."""
    out = np.empty(codes.shape, np.int32)
    for span in books:
        out[..., span.channels] = span.centroids[codes[..., span.channels]]
    return out
