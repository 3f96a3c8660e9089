"""Stored vectors: the arithmetic of docs/retrieval.md in numpy, written for reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvassay.backend.checks import require_ieee
from kvassay.page.tiles import LANES, unpack_keys
from kvassay.protocol import Availability
from kvassay.retrieval import Affine, Stored, VectorCode
from kvassay.streams import Codec

from .arithmetic import F32, const, d16, integer_dot, single
from .codebook import Span, spans
from .query import TURBO_BOUND, integer_vector
from .transform import SplitMix64, draw_permutation, draw_signs, hadamard

STREAM: Final = 3
#: Standard deviations over that of the vector that codes are tried with.
FACTORS: Final = (0.8125, 0.875, 0.9375, 1.0, 1.0625, 1.125, 1.1875, 1.25)
#: Vectors whose scores are computed at a time, a multiple of 16.
_BATCH: Final = 4096

U8 = NDArray[np.uint8]
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Tables:
    """What a code needs at hand: rotation and codebook."""

    s1: F32
    perm: NDArray[np.intp]
    s2: F32
    span: Span


@lru_cache
def _tables(code: VectorCode) -> _Tables:
    generator = SplitMix64(code.seed, STREAM)
    s1 = draw_signs(generator, code.channels)
    perm = draw_permutation(generator, code.channels)
    (span,) = spans(Codec("turbo", float(code.bits)), code.channels)
    return _Tables(s1, perm, draw_signs(generator, code.channels), span)


class ReferenceScorer:
    """The definition that other scorers are compared with."""

    name = "reference"
    variant = "scalar"

    def rotate(self, code: VectorCode, x: F32) -> F32:
        """x (n, dim) as (n, channels), unscaled."""
        require_ieee()
        t = _tables(code)
        padded = np.zeros((len(x), code.channels), np.float32)
        padded[:, : code.dim] = x
        y = hadamard(single(t.s1 * padded), code.block)
        return hadamard(single(t.s2 * y[:, t.perm]), code.block)

    def encode(self, code: VectorCode, affine: Affine | None, x: F32) -> tuple[U8, F32]:
        """Codes (n, channels), one a byte, and scales (n,)."""
        codes = np.empty((len(x), code.channels), np.uint8)
        scales = np.empty(len(x), np.float32)
        for start in range(0, len(x), _BATCH):
            part = slice(start, start + _BATCH)
            codes[part], scales[part] = _encode(code, affine, self.rotate(code, x[part]))
        return codes, scales

    def search(
        self,
        code: VectorCode,
        affine: Affine | None,
        stored: Stored,
        q: F32,
        k: int,
        allowed: U8 | None,
    ) -> tuple[F32, Rows]:
        """The k best for each row of q: scores and rows."""
        scores = self.scores(code, affine, stored, q)
        rows = np.arange(stored.count) if allowed is None else np.flatnonzero(allowed)
        order = np.argsort(-scores[:, rows], axis=1, kind="stable")[:, :k]
        found = rows[order]
        return np.take_along_axis(scores, found, 1), found.astype(np.int64)

    def scores(self, code: VectorCode, affine: Affine | None, stored: Stored, q: F32) -> F32:
        """Scores of every stored vector, (m, count)."""
        z = self.rotate(code, q)
        read = const(1 / code.block)
        bias = np.zeros(len(q), np.float32)
        if affine is not None:
            bias = single(d16(z, affine.shift) * read)
            if affine.gain is None:
                bias = single(bias * read)
            else:
                z = single(z * _step(code, affine.gain))
        query = integer_vector(z, TURBO_BOUND)
        factor = single(query.qs * read)[:, np.newaxis]
        scores = np.empty((len(q), stored.count), np.float32)
        for start in range(0, stored.count, _BATCH):
            end = min(start + _BATCH, stored.count)
            centroids = _tables(code).span.centroids[_codes(code, stored, start, end)]
            sums = integer_dot(query.qi, centroids.T).astype(np.float32)
            su = stored.scales[start:end]
            if affine is None or affine.gain is None:
                scores[:, start:end] = single(single(sums * su) * factor)
                if affine is not None:
                    scores[:, start:end] = single(scores[:, start:end] + bias[:, np.newaxis])
            else:
                moved = single(single(sums * factor) + bias[:, np.newaxis])
                scores[:, start:end] = single(moved * su)
        return scores


def _encode(code: VectorCode, affine: Affine | None, y: F32) -> tuple[U8, F32]:
    if affine is not None and affine.gain is None:
        y = single(y - affine.shift)
    n2 = d16(y, y)
    zero = n2 == 0
    sigma = np.sqrt(single(n2 * const(1 / code.channels)))
    if affine is None or affine.gain is None:
        codes, along = _nearest(code, y, sigma)
        scales = single(n2 / np.where(zero, np.float32(1), along))
    else:
        w = single(y * single(np.float32(1) / np.where(zero, np.float32(1), sigma))[:, np.newaxis])
        u = single(single(w - affine.shift) * affine.gain)
        th = np.broadcast_to(_tables(code).span.thresholds, (len(y), 2 ** (code.bits - 1) - 1))
        codes = _quantize(code, u, th)
        towards = single(single(_centroids(code, codes) * _step(code, affine.gain)) + affine.shift)
        e = np.where(zero, np.float32(1), d16(w, towards))
        with np.errstate(divide="ignore"):  # e = 0 gives an infinite scale, which add refuses
            scales = single(single(d16(w, w) / e) * sigma)
    codes[zero] = 2 ** (code.bits - 1)
    scales = np.where(zero, np.float32(0), single(scales * const(1 / code.block)))
    return codes, scales


def _nearest(code: VectorCode, y: F32, sigma: F32) -> tuple[U8, F32]:
    """The codes nearest in direction of those tried, and their D16 with y; the first of equals."""
    codes = np.zeros(y.shape, np.uint8)
    most, along = np.zeros(len(y), np.float32), np.zeros(len(y), np.float32)
    for factor in FACTORS:
        unit = single(sigma * np.float32(factor))
        tried = _quantize(code, y, single(unit[:, np.newaxis] * _tables(code).span.thresholds))
        towards = _centroids(code, tried)
        e = d16(y, towards)
        fit = single(e / np.sqrt(d16(towards, towards)))
        better = fit > most
        codes[better] = tried[better]
        most, along = np.where(better, fit, most), np.where(better, e, along)
    return codes, along


def _step(code: VectorCode, gain: F32) -> F32:
    """What one unit of the centroids is worth in each channel, in units of the root mean square."""
    return single(const(code.unit) / gain)


def _quantize(code: VectorCode, w: F32, thresholds: F32) -> U8:
    half = 2 ** (code.bits - 1)
    m = np.zeros(w.shape, np.uint8)
    for th in thresholds.T:
        m += np.abs(w) >= th[:, np.newaxis]
    return np.where(w < 0, np.uint8(half - 1) - m, np.uint8(half) + m)


def _centroids(code: VectorCode, codes: U8) -> F32:
    return _tables(code).span.centroids[codes].astype(np.float32)


def _codes(code: VectorCode, stored: Stored, start: int, end: int) -> U8:
    """Codes (end - start, channels); start is a multiple of 16."""
    first, last = start // LANES, -(-end // LANES)
    parts = [
        unpack_keys(
            np.ascontiguousarray(tiles[first:last]).reshape(-1),
            ((0, code.width, code.bits),),
            (last - first) * LANES,
        )
        for tiles in stored.tiles
    ]
    return np.concatenate(parts, axis=1)[: end - start]


class ReferenceScorers:
    """The provider: one variant, always ready."""

    name = "reference"

    def variants(self) -> Mapping[str, Availability]:
        """One, which always runs."""
        return {"scalar": Availability("ready")}

    def load(self, variant: str) -> ReferenceScorer:
        """The scorer."""
        return ReferenceScorer()


scorers: Final = ReferenceScorers()
