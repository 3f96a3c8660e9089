"""Bias and variance of the key estimator over many transforms and many keys."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

import kvassay
from kvassay.protocol import FloatArray
from kvassay.records import Record

from ..common.inputs import gaussian, tokens
from ..common.specs import MATH, record
from .ideal import key_bias
from .readout import GROUP, KV_HEADS, PAGE, plain_spec

SEEDS: Final = 24
#: Cosine of each query with its key: where shrinking shows, and where noise is still present.
COSINE: Final = 0.5


def _queries(k: FloatArray, seed: int) -> FloatArray:
    """For each key (rows, d) a query of equal norm at COSINE to it."""
    other = gaussian(seed, *k.shape)
    along = np.sum(other * k, -1, keepdims=True) / np.sum(k * k, -1, keepdims=True)
    across = other - along * k
    across *= np.linalg.norm(k, axis=-1, keepdims=True) / np.linalg.norm(
        across, axis=-1, keepdims=True
    )
    return np.asarray(COSINE * k + np.sqrt(1 - COSINE**2) * across, np.float32)


def measure(backend: str, variant: str, codec: str, head_dims: list[int]) -> list[Record]:
    """|z| of the mean relative error of q . k_hat, less the expected one, at each head dim."""
    loaded = kvassay.load(backend, variant)
    records = []
    for d in head_dims:
        errors = []
        for seed in range(SEEDS):
            spec = plain_spec(d, keys=codec, seed=seed)
            k, _ = tokens("gaussian", seed, PAGE, KV_HEADS, d)
            rows = k[:GROUP].transpose(1, 0, 2).reshape(-1, d)
            q = _queries(rows, 500 + seed)
            with loaded.prepare(spec) as cache:
                cache.append(0, k, k)
                found = cache.scores(0, q).reshape(KV_HEADS, GROUP, PAGE)
            own = found[:, np.arange(GROUP), np.arange(GROUP)].reshape(-1).astype(np.float64)
            exact = np.einsum("ij,ij->i", q.astype(np.float64), rows.astype(np.float64))
            errors.append((own - exact) / np.sum(rows.astype(np.float64) ** 2, -1))
        records.append(_record(backend, variant, codec, d, np.concatenate(errors)))
    return records


def _record(backend: str, variant: str, codec: str, d: int, errors: NDArray[np.float64]) -> Record:
    mean, deviation = float(errors.mean()), float(errors.std(ddof=1))
    expected, doubt = key_bias(codec, d)
    off = mean - COSINE * expected
    standard_error = float(np.hypot(deviation / np.sqrt(len(errors)), COSINE * doubt))
    z = abs(off) / standard_error if standard_error else np.inf * off if off else 0.0
    return record(
        "correctness.bias_z",
        MATH,
        backend,
        variant,
        abs(z),
        "standard errors",
        len(errors),
        subject=f"keys {codec} d{d}",
        detail={
            "relative_bias": mean / COSINE,
            "expected_bias": expected,
            "d_times_variance": d * deviation**2,
            "seeds": SEEDS,
            "cosine": COSINE,
        },
    )
