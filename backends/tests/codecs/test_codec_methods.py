"""What single methods promise beyond a distortion, and codecs by layer."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from codec_tools import decoded, gaussian, make, nmse

from kvassay.arms.layers import allocate_bits, layer_codecs
from kvassay.errors import InputError, SpecError
from kvassay_codecs.base import EncodedArrays
from kvassay_codecs.rope import Rotary
from kvassay_codecs.spinquant import range_loss


@pytest.mark.parametrize("order", ["interleaved", "half"])
def test_kvquant_scores_keys_as_they_were_before_rope(order: str) -> None:
    """Smooth channels before RoPE: storing them there is better, and the score path agrees."""
    rotary = Rotary(64, 10000.0, order)
    plain = gaussian(1, 400, 2, 64) + np.float32(6) * gaussian(2, 1, 2, 64)
    x = np.ascontiguousarray(rotary.turn(plain.swapaxes(0, 1)).swapaxes(0, 1))
    before = make("kvquant", 64, rope_base=10000.0, rope_order=order)
    after = make("kvquant", 64)
    assert nmse(x, decoded(before, x)) < 0.3 * nmse(x, decoded(after, x))
    q = gaussian(3, 5, 2, 64)
    encoded = before.encode(x)
    expected = np.einsum("nhd,thd->nht", q, encoded.decode())
    assert np.abs(encoded.score(q) - expected).max() < 1e-4 * np.abs(expected).max()
    back = rotary.turn(rotary.turn(plain.swapaxes(0, 1)), back=True).swapaxes(0, 1)
    assert np.abs(back - plain).max() < 1e-5


def test_kvquant_keeps_outliers_and_the_first_token_exactly() -> None:
    x = gaussian(4, 300, 1, 64)
    x[50, 0, 7] = 900.0
    y = decoded(make("kvquant", 64), x)
    assert y[50, 0, 7] == 900.0
    assert (y[0] == x[0].astype(np.float16)).all()
    assert not (y[1] == x[1].astype(np.float16)).all()


@pytest.mark.parametrize(("tokens", "residual"), [(100, 0), (100, 32), (100, 64), (31, 32)])
def test_kivi_flushes_keys_by_block_and_keeps_the_newest_values(tokens: int, residual: int) -> None:
    x = gaussian(5, tokens, 1, 64)
    stored = x.astype(np.float16).astype(np.float32)
    for role in ("key", "value"):
        y = decoded(make("kivi", 64, residual=residual, role=role), x)
        exact = int((y == stored).all(axis=(1, 2)).sum())
        kept = tokens % (residual or 32) if role == "key" else min(residual, tokens)
        assert exact == kept
        if kept:
            assert (y[-kept:] == stored[-kept:]).all()


def test_kivi_keys_have_four_levels_a_group() -> None:
    y = decoded(make("kivi", 64, bits=2), gaussian(6, 64, 1, 64))
    for group, channel in product((slice(0, 32), slice(32, 64)), range(64)):
        assert len(np.unique(y[group, 0, channel])) <= 4


def test_qserve_smooths_channels_and_the_query_undoes_it() -> None:
    x = gaussian(7, 300, 1, 64)
    x[..., 3] *= 30
    assert nmse(x, decoded(make("qserve", 64), x)) < 0.7 * nmse(
        x, decoded(make("qserve", 64, alpha=0.0), x)
    )
    encoded = make("qserve", 64).encode(x)
    assert isinstance(encoded, EncodedArrays)
    assert encoded.held["fitted lambda"].shape == (1, 32)  # tied over i and i + d/2


def test_spinquant_learns_a_rotation_that_helps_on_other_data() -> None:
    mix = np.diag(np.geomspace(1, 8, 64)).astype(np.float32) @ np.linalg.qr(gaussian(8, 64, 64))[0]
    learn, held_out = (gaussian(seed, 2000, 64) @ mix for seed in (9, 10))
    codec = make("spinquant", 64, steps=100).fit(learn)
    assert nmse(held_out, decoded(codec, held_out)) < 0.95 * nmse(
        held_out, decoded(make("quarot", 64), held_out)
    )


def test_gradient_of_the_range_loss() -> None:
    y = gaussian(11, 5, 64).astype(np.float64)
    loss, slope = range_loss(y)
    move = gaussian(12, 5, 64).astype(np.float64) * 1e-6
    assert (range_loss(y + move)[0] - loss) / (slope * move).sum() == pytest.approx(1, abs=1e-4)


def test_kvarn_evens_out_channels() -> None:
    x = gaussian(13, 256, 1, 64)
    rotated_outlier = np.ones(64, np.float32) / 8  # becomes one channel under Hadamard
    x += np.float32(40) * gaussian(14, 256, 1, 1) * rotated_outlier
    assert nmse(x, decoded(make("kvarn", 64, bits=3), x)) < 0.5 * nmse(
        x, decoded(make("quarot", 64, bits=3, clip=1.0), x)
    )


def test_turbovec_dual_of_the_calibration() -> None:
    x = gaussian(15, 500, 2, 64) + np.float32(3) * gaussian(16, 1, 2, 64)
    encoded = make("turbovec", 64).encode(x)
    q = gaussian(17, 4, 2, 64)
    expected = np.einsum("nhd,thd->nht", q, encoded.decode())
    assert np.abs(encoded.score(q) - expected).max() < 1e-4 * np.abs(expected).max()


def test_layers_protected_and_by_bits() -> None:
    made = layer_codecs("kivi", 4, head_dim=64, bits=[2, 3, 4, 2], protected=(0, -1))
    assert [codec.name for codec in made] == ["fp16", "kivi", "kivi", "fp16"]
    assert [codec.bits for codec in made] == [16, 3, 4, 16]
    with pytest.raises(SpecError, match="protected layer 4"):
        layer_codecs("kivi", 4, head_dim=64, protected=(4,))
    with pytest.raises(SpecError, match="3 rates for 4 layers"):
        layer_codecs("kivi", 4, head_dim=64, bits=[2, 3, 4])


def test_bits_go_where_they_save_most() -> None:
    curves = [{b: weight * 4.0**-b for b in (2.0, 3.0, 4.0)} for weight in (1, 100, 10)]
    chosen = allocate_bits(curves, 3.0)
    assert chosen == (2.0, 4.0, 3.0)
    best = min(
        (rates for rates in product((2.0, 3.0, 4.0), repeat=3) if sum(rates) <= 9),
        key=lambda rates: sum(curve[rate] for curve, rate in zip(curves, rates, strict=True)),
    )
    assert chosen == best
    assert math.isclose(sum(allocate_bits(curves, 4.0)), 12)
    with pytest.raises(InputError, match="less than the lowest"):
        allocate_bits(curves, 1.5)
