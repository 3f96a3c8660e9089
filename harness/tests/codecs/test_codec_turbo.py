"""turbo beyond what a cache of a spec stores: which mean is taken off, and off which tokens."""

from __future__ import annotations

import numpy as np
import pytest
from codec_tools import decoded, gaussian, make, nmse

from kvassay.errors import SpecError
from kvassay.protocol import FloatArray


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


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"choice": True, "role": "value"}, "no meaning without centring"),
        ({"choice": 1}, "neither True nor False"),
        ({"page": 24}, "page 24 is not a multiple of 16"),
    ],
)
def test_what_cannot_be_stored_is_refused(params: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make("turbo", 64, **params)
