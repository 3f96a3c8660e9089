"""Centring beyond what a cache of a spec stores: which mean is taken off, and off which tokens."""

from __future__ import annotations

import numpy as np
import pytest
from codec_tools import decoded, gaussian, make, nmse

from kvassay.errors import SpecError
from kvassay.protocol import FloatArray
from kvassay_codecs.rope import Rotary


def _mixed(short: int = 8) -> FloatArray:
    """192 keys about a mean of three standard deviations; every eighth lies near the origin."""
    x = gaussian(31, 192, 2, 64) + np.float32(3) * gaussian(32, 1, 2, 64)
    x[::short] *= np.float32(0.05)
    return x


@pytest.mark.parametrize("centre", ["page", "frozen"])
@pytest.mark.parametrize("role", ["key", "value"])
def test_short_tokens_keep_their_own_error_where_centring_is_a_choice(
    centre: str, role: str
) -> None:
    x = _mixed()
    plain, chosen = (
        decoded(make("turbo", 64, bits=3, role=role, centre=centre, choice=choice), x)
        for choice in (False, True)
    )
    assert nmse(x[::8], chosen[::8]) < 0.05 < 1 < nmse(x[::8], plain[::8])
    rest = np.arange(192) % 8 != 0
    assert nmse(x[rest], chosen[rest]) < 1.1 * nmse(x[rest], plain[rest])


@pytest.mark.parametrize("centre", ["page", "frozen"])
def test_the_choice_costs_a_bit_a_token(centre: str) -> None:
    plain, chosen = (
        make("turbo", 64, bits=3, centre=centre, choice=choice).encode(_mixed())
        for choice in (False, True)
    )
    assert chosen.page_bits - plain.page_bits == 1 / 64
    assert chosen.parts["centred"] == 2 * 192 // 8


def test_a_frozen_mean_is_that_of_the_first_page_and_counted_once() -> None:
    x = _mixed(1000)
    encoded = make("turbo", 64, bits=4, centre="frozen").encode(x)
    assert encoded.parts["fitted mean"] == 2 * 2 * 64
    assert encoded.page_bits == 4 + 8 / 64 + 32 / 64 / 64
    far = x.copy()
    far[64:] += 50
    assert nmse(far[64:], decoded(make("turbo", 64, bits=4, centre="frozen"), far)[64:]) > (
        nmse(far[64:], decoded(make("turbo", 64, bits=4, centre="page"), far)[64:])
    )


@pytest.mark.parametrize("page", [16, 32, 128])
def test_pages_of_other_sizes(page: int) -> None:
    x = gaussian(33, 256, 1, 64)
    encoded = make("turbo", 64, bits=3, page=page, choice=True).encode(x)
    assert encoded.page_bits == 3 + 8 / 64 + (32 / 64 + 16) / page + 1 / 64
    alone = make("turbo", 64, bits=3, page=page, choice=True).encode(x[page : 2 * page])
    assert (alone.decode() == encoded.decode()[page : 2 * page]).all()


def test_a_mean_before_rope_serves_every_page_and_costs_none_of_them() -> None:
    """Keys that stand still before RoPE; fitted on others of the same mean."""
    turn = Rotary(64, 10000.0, "interleaved").turn
    mean = np.float32(4) * gaussian(34, 1, 2, 64)
    x, learn = (
        np.ascontiguousarray(turn((gaussian(seed, 256, 2, 64) + mean).swapaxes(0, 1)))
        .swapaxes(0, 1)
        .copy()
        for seed in (35, 36)
    )
    x[::8] = np.float32(0.05) * gaussian(37, 32, 2, 64)
    page = make("turbo", 64, bits=3, choice=True)
    rope = make("turbo", 64, bits=3, centre="rope", choice=True, rope_base=10000.0).fit(learn)
    once, each = rope.encode(x), page.encode(x)
    assert each.page_bits - once.page_bits == 16 / 64
    assert nmse(x, once.decode()) < 0.8 * nmse(x, each.decode())
    assert once.parts["fitted mean"] == 2 * 2 * 64
    wrong = make("turbo", 64, bits=3, centre="rope", rope_base=500.0).fit(learn)
    assert nmse(x, decoded(wrong, x)) > 3 * nmse(x, once.decode())


@pytest.mark.parametrize("of", ["eden_unbiased", "e8", "q4_0", "kivi"])
def test_any_codec_gains_from_centring(of: str) -> None:
    x = _mixed()
    alone, centred = make(of, 64, bits=4), make("centred", 64, bits=4, of=of)
    assert nmse(x, decoded(centred, x)) < 0.7 * nmse(x, decoded(alone, x))
    extra = centred.encode(x).page_bits - alone.encode(x).page_bits
    assert extra == pytest.approx(16 / 64 + 1 / 64)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"choice": True, "role": "value"}, "no meaning without centring"),
        ({"choice": 1}, "neither True nor False"),
        ({"centre": "rope"}, "needs their rope_base, not None"),
        ({"centre": "rope", "rope_base": 1e4, "role": "value"}, "is for keys"),
        ({"name": "centred", "of": "turbo", "bits": 3}, "it centres by itself"),
        ({"name": "centred", "of": "pq", "bits": 2}, "learns from data"),
        ({"name": "centred", "of": "drive", "bits": 2}, "not one of its rates"),
        ({"page": 24}, "page 24 is not a multiple of 16"),
    ],
)
def test_what_cannot_be_stored_is_refused(params: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make(**{"name": "turbo", "head_dim": 64, **params})  # type: ignore[arg-type]
