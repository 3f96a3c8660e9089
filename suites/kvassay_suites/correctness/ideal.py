"""What each codec's distortion must be on N(0, 1) data: theory in float64, no backend involved.

The figure is vNMSE, the mean over vectors of |x - x_hat|^2 / |x|^2 (arXiv 2108.08842). Codebooks
are Lloyd-Max in float (Lloyd 1982, Max 1960), not the contract's integers; expectations are taken
over pinned samples, since no closed form holds at finite head dim.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from kvassay.streams import Codec, parse_codec

Float64 = NDArray[np.float64]
#: Sampled channels: the figure is good to about a third of a percent.
SAMPLES: Final = 1 << 18
GROUP: Final = 32


@lru_cache(maxsize=8)
def lloyd_max(bits: int) -> Float64:
    """The 2^bits centroids of least mean squared error on N(0, 1), increasing."""
    levels = 2**bits
    centroids = ndtri((np.arange(levels) + 0.5) / levels)
    for _ in range(3000):
        edges = np.concatenate(([-np.inf], (centroids[1:] + centroids[:-1]) / 2, [np.inf]))
        density = np.exp(-(edges**2) / 2) / np.sqrt(2 * np.pi)
        moved = -np.diff(density) / np.diff(ndtr(edges))
        if np.abs(moved - centroids).max() < 1e-12:
            break
        centroids = moved
    return np.asarray(centroids, np.float64)


def _sample(d: int) -> Float64:
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence((11, d))))
    return random.standard_normal((max(512, SAMPLES // d) // GROUP * GROUP, d))


def cosine_squared(x: Float64, codeword: Float64) -> Float64:
    """Squared cosine of each row with its codeword."""
    dot = np.einsum("ij,ij->i", x, codeword)
    return np.asarray(dot**2 / (np.sum(x**2, 1) * np.sum(codeword**2, 1)))


def _codewords(codec: Codec, x: Float64) -> Float64:
    unit = x / np.sqrt(np.mean(x**2, axis=1, keepdims=True))
    out = np.empty_like(unit)
    for first, channels, bits in codec.splits(x.shape[1]):
        table = lloyd_max(bits)
        part = unit[:, first : first + channels]
        out[:, first : first + channels] = table[np.digitize(part, (table[1:] + table[:-1]) / 2)]
    return np.asarray(out)


def _min_max(x: Float64, bits: float) -> Float64:
    """Asymmetric round to nearest of the last axis (KIVI, arXiv 2402.02750)."""
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    step = (high - low) / (2**bits - 1)
    return np.asarray(low + np.rint((x - low) / step) * step)


def _kivi(stream: str, codec: Codec, x: Float64) -> Float64:
    if stream == "keys":
        groups = x.T.reshape(x.shape[1], -1, GROUP)
        return np.asarray(_min_max(groups, codec.bits).reshape(x.shape[1], -1).T)
    parts = [x[:, start : start + GROUP] for start in range(0, x.shape[1], GROUP)]
    return np.concatenate([_min_max(part, codec.bits) for part in parts], axis=1)


def _sign_factor(d: int) -> float:
    """|e - e_hat|^2 / |e|^2 of the sign projection of a residual e, by an orthogonal matrix."""
    u = _sample(d)
    shares = np.abs(u).sum(1) / np.linalg.norm(u, axis=1)
    return float(np.mean(1 + np.pi / 2 - 2 * np.sqrt(np.pi / 2 / d) * shares))


@lru_cache(maxsize=256)
def distortion(stream: str, codec_name: str, d: int) -> float:
    """Expected vNMSE of a stream ("keys" or "values") stored with a codec at head dim d.

    Keys of `turbo` carry the unbiased scale, values and keys of `turbo+qjl` the one of least error.
    """
    codec = parse_codec(codec_name, stream)
    x = _sample(d)
    if codec.family == "fp16":
        x_hat = x.astype(np.float16).astype(np.float64)
    elif codec.family == "kivi":
        x_hat = _kivi(stream, codec, x)
    else:
        c2 = cosine_squared(x, _codewords(codec, x))
        if codec.qjl:
            return float(np.mean(1 - c2)) * _sign_factor(d)
        return float(np.mean(1 / c2 - 1 if stream == "keys" else 1 - c2))
    return float(np.mean(np.sum((x - x_hat) ** 2, 1) / np.sum(x**2, 1)))


@lru_cache(maxsize=64)
def key_bias(codec_name: str, d: int) -> tuple[float, float]:
    """Expected <x, x_hat> / |x|^2 - 1 of stored keys, and the standard error of that figure.

    Zero for the estimators that are unbiased by construction. Min-max rounding is not: where a
    Gaussian is dense, few levels push values outwards.
    """
    codec = parse_codec(codec_name, "keys")
    if codec.family != "kivi":
        return 0.0, 0.0
    x = _sample(d)
    shares = np.sum((_kivi("keys", codec, x) - x) * x, 1) / np.sum(x**2, 1)
    return float(shares.mean()), float(shares.std(ddof=1) / np.sqrt(len(shares)))


def query_noise(codec_name: str) -> float:
    """Share of |x|^2 that reading keys through `scores` adds: the query's own rounding.

    A query of 127 steps up to its largest channel, at most 4 standard deviations for a basis
    vector, is off by step / sqrt(12) a channel (docs/numeric-contract.md, section 7).
    """
    codec = parse_codec(codec_name, "keys")
    return (3.0 / 127) ** 2 / 12 if codec.rotated else 0.0
