"""Direction and order kept by every codec, and where codebooks for random directions hold."""

from __future__ import annotations

import numpy as np
import pytest
from codec_tools import NAMES, decoded, make, vnmse
from scipy import stats

from kvassay.distortion import DataSet, captured, measure, synthetic
from kvassay.models import load
from kvassay.protocol import FloatArray
from kvassay_codecs import codebooks
from kvassay_codecs.rotations import rotation

#: 1 - cosine, and share of the ten largest scores that stay: default rate, d = 64, Gaussian keys.
KEPT = {
    "fp16": (2.1e-08, 1.0),
    "turbo": (0.01031, 0.858),
    "centred": (0.004277, 0.905),
    "turboquant_mse": (0.01614, 0.833),
    "turboquant_prod": (0.07659, 0.620),
    "turboquant_prod_released": (0.03178, 0.780),
    "fast_turboquant": (0.01618, 0.847),
    "qjl": (0.2085, 0.467),
    "polarquant": (0.01597, 0.847),
    "drive": (0.1975, 0.502),
    "eden_biased": (0.01614, 0.825),
    "eden_unbiased": (0.01614, 0.828),
    "rabitq": (0.004282, 0.905),
    "turbovec": (0.004518, 0.905),
    "e8": (0.04537, 0.744),
    "pq": (0.05942, 0.705),
    "kivi": (0.06924, 0.691),
    "kvquant": (0.01269, 0.848),
    "kvarn": (0.08285, 0.659),
    "quarot": (0.00376, 0.909),
    "spinquant": (0.003779, 0.911),
    "qserve": (0.003953, 0.922),
    "flexgen": (0.003869, 0.912),
    "fp8_e4m3": (0.0003304, 0.977),
    "fp8_e5m2": (0.001304, 0.939),
    "q8_0": (1.395e-05, 0.991),
    "q5_1": (0.0007062, 0.956),
    "q5_0": (0.0008911, 0.950),
    "q4_1": (0.003023, 0.927),
    "q4_0": (0.003621, 0.919),
    "iq4_nl": (0.003082, 0.931),
}


@pytest.mark.parametrize("name", NAMES)
def test_cosine_and_order_are_kept(name: str) -> None:
    found = measure(make(name, 64), synthetic("gaussian", 64, 260))
    cosine_error, top10 = KEPT[name]
    assert found.top10 is not None
    assert found.cosine_error == pytest.approx(cosine_error, rel=0.08)
    assert found.top10 == pytest.approx(top10, abs=0.03)


def _mismatch(k: FloatArray, kind: str) -> tuple[float, float]:
    """Of keys (n, d) under a rotation: the Kolmogorov-Smirnov distance of their coordinates from
    the marginal of a uniform unit vector, and the distortion of 4 bits over that of the marginal.
    """
    d = k.shape[1]
    y = k / np.linalg.norm(k, axis=1, keepdims=True) @ rotation(kind, d).T
    marginal = stats.beta((d - 1) / 2, (d - 1) / 2)
    distance = float(stats.kstest((1 + y.ravel()) / 2, marginal.cdf).statistic)
    codec = make("turboquant_mse", d, bits=4, rotation=kind)
    return distance, vnmse(k, decoded(codec, k)) / codebooks.beta(4, d)[1]


@pytest.mark.parametrize("d", [64, 128, 192, 256])
@pytest.mark.parametrize(
    ("data", "furthest", "dearest"), [("gaussian", 0.008, 1.03), ("outliers", 0.012, 1.10)]
)
def test_rotated_coordinates_follow_the_marginal(
    d: int, data: str, furthest: float, dearest: float
) -> None:
    distance, cost = _mismatch(synthetic(data, d).k[:, 0], "two-rounds")
    assert distance < furthest
    assert cost < dearest


@pytest.mark.parametrize("d", [64, 128, 192, 256])
def test_a_shared_mean_leaves_the_marginal(d: int) -> None:
    """Keys of one direction meet one rotation: what they lose is luck, within a factor of 1.6."""
    biased = synthetic("biased", d).k[:, 0]
    found = [_mismatch(biased, kind) for kind in ("dense", "one-round", "two-rounds")]
    plain = _mismatch(synthetic("gaussian", d).k[:, 0], "two-rounds")
    assert max(distance for distance, _ in found) > 3 * plain[0]
    assert max(cost for _, cost in found) < 1.6


@pytest.fixture(scope="module")
def smollm2() -> DataSet:
    return captured(load(), "smollm2-135m")


@pytest.mark.long
@pytest.mark.model
@pytest.mark.parametrize("bits", [2, 3])
def test_kvquant_stores_keys_of_a_real_model_better_before_rope(
    smollm2: DataSet, bits: int
) -> None:
    """The paper's reason for storing them there: section 3.2."""
    before, after = (
        measure(make("kvquant", 64, bits=bits, rope_base=base), smollm2)
        for base in (smollm2.rope_base, None)
    )
    assert before.nmse < 0.8 * after.nmse
    assert before.loss < 0.9 * after.loss


@pytest.mark.long
@pytest.mark.model
def test_a_mean_before_rope_pays_on_keys_of_a_real_model(smollm2: DataSet) -> None:
    """The bit a token pays where a token is short: not among these, and it costs them nothing."""
    base = smollm2.rope_base
    page, chosen, rope = (
        measure(make("turbo", 64, **params), smollm2)
        for params in ({}, {"choice": True}, {"choice": True, "centre": "rope", "rope_base": base})
    )
    assert chosen.loss < 1.005 * page.loss
    assert rope.loss < page.loss
    assert rope.page_bits < page.page_bits - 0.2


@pytest.mark.long
@pytest.mark.model
def test_keys_of_a_real_model(smollm2: DataSet) -> None:
    """Heads side by side stand for larger head dims; the figures are in docs/codecs.md."""
    data = smollm2
    for d in (64, 128, 192, 256):
        heads = data.k[4:, : d // 64].reshape(-1, d)
        distance, cost = _mismatch(np.ascontiguousarray(heads), "two-rounds")
        print(f"d = {d}: distance {distance:.4f}, distortion {cost:.3f} of the marginal's")
        assert distance < 0.1
        assert cost < 1.6
