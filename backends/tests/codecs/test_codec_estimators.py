"""Bias and variance of estimators over their random transforms, by z-test.

A z beyond 4.5 has a chance of 7e-6 where an estimator is what it claims to be. Transforms have
their own random streams: the seeds here vary them alone, keys and queries stay.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from codec_tools import decoded, gaussian, make
from numpy.typing import NDArray

from kvassay.protocol import FloatArray

Doubles = NDArray[np.float64]
LIMIT = 4.5


def _pair(seed: int, d: int, cosine: float) -> tuple[FloatArray, FloatArray]:
    """A unit key (1, d) and a unit query (d,) at that cosine."""
    k, q = gaussian(seed, 2, d).astype(np.float64)
    k /= np.linalg.norm(k)
    q -= (q @ k) * k
    q /= np.linalg.norm(q)
    q = cosine * k + math.sqrt(1 - cosine**2) * q
    return k[np.newaxis].astype(np.float32), q.astype(np.float32)


def _estimates(name: str, d: int, cosine: float, seeds: int, **params: Any) -> Doubles:
    k, q = _pair(1, d, cosine)
    found = [make(name, d, seed=seed, **params).encode(k).score(q)[0] for seed in range(seeds)]
    return np.asarray(found, np.float64)


def _z(estimates: Doubles, truth: float) -> float:
    error = estimates.std(ddof=1) / math.sqrt(len(estimates))
    return float((estimates.mean() - truth) / error)


UNBIASED = [
    ("qjl", {"bits": 1, "outlier_channels": 0}),
    ("turboquant_prod", {"bits": 2}),
    ("turboquant_prod", {"bits": 3}),
    ("eden_unbiased", {"bits": 1, "rotation": "dense"}),
    ("eden_unbiased", {"bits": 2, "rotation": "dense"}),
    ("drive", {"rotation": "dense"}),
    ("rabitq", {"bits": 1}),
    ("rabitq", {"bits": 2}),
    ("e8", {"bits": 2, "rotation": "dense"}),
]


@pytest.mark.parametrize(("name", "params"), UNBIASED, ids=str)
def test_unbiased_estimators_are(name: str, params: dict[str, Any]) -> None:
    estimates = _estimates(name, 16, 0.5, 500, **params)
    # fp16 scales round to nearest: up to 2^-11 of the product is not the estimator's.
    assert abs(_z(estimates, 0.5)) < LIMIT


@pytest.mark.parametrize(("name", "bits"), [("turboquant_mse", 1), ("eden_biased", 1)])
def test_the_test_finds_the_bias_of_biased_estimators(name: str, bits: int) -> None:
    estimates = _estimates(name, 16, 0.5, 500, bits=bits, rotation="dense")
    assert _z(estimates, 0.5) < -2 * LIMIT


@pytest.mark.parametrize(("cosine", "variance"), [(0.0, 1.565), (0.5, 1.282), (1.0, 0.566)])
def test_variance_of_qjl(cosine: float, variance: float) -> None:
    """m Var = pi/2 |q|^2 |k|^2 - <q, k>^2 (arXiv 2406.03482, Lemma 3.5, with equality)."""
    d = m = 32
    estimates = _estimates("qjl", d, cosine, 2500, bits=m / d, outlier_channels=0)
    assert abs(_z(estimates, cosine)) < LIMIT
    exact = math.pi / 2 - cosine**2
    assert abs(exact - variance) < 0.04
    # The sampling error of a variance of nearly normal numbers is sqrt(2 / n).
    assert abs(m * estimates.var(ddof=1) / exact - 1) < LIMIT * math.sqrt(2 / 2500)


def test_the_released_turboquant_assumes_a_residual_norm() -> None:
    """Its constants are right on average: products keep their size, for no vector exactly."""
    x = gaussian(2, 3000, 128)
    y = decoded(make("turboquant_prod_released", bits=2), x)
    share = (x * y).sum(1) / np.square(x).sum(1)
    assert abs(share.mean() - 1) < 0.01
    assert share.std() > 0.01


def test_data_and_transform_of_one_seed_are_independent() -> None:
    """Data drawn as any test would draw it, with the transform's own seed number."""
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal((256, 64)).astype(np.float32)
        y = decoded(make("turboquant_mse", 64, bits=4, seed=seed), x)
        errors = np.square(x - y).sum(1) / np.square(x).sum(1)
        assert errors.max() < 0.1  # a vector that meets its own rotation loses everything
