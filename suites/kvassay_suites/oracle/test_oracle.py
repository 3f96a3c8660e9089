"""The oracle against definitions and known numbers, no backend involved."""

import numpy as np
import pytest

from .attention import attend64, attended
from .errors import OracleError
from .page import read_page
from .rotation import draws, mix, rotation
from .tiles import head_bytes, key_addresses, spans_of, value_addresses

HEAD_DIMS = (16, 64, 80, 96, 112, 128, 160, 192, 256)


def test_generator_is_splitmix64() -> None:
    """The published first numbers from state 0, and that the streams of a seed differ."""
    gamma = 0x9E3779B97F4A7C15
    assert mix(gamma) == 0xE220A8397B1DCDAF
    assert mix(2 * gamma % 2**64) == 0x6E789E6AA1B965F4
    assert len({next(draws(seed, stream)) for seed in (0, 1) for stream in range(3)}) == 6


@pytest.mark.parametrize("d", HEAD_DIMS)
@pytest.mark.parametrize("rounds", [1, 2])
def test_rotation_is_orthogonal(d: int, rounds: int) -> None:
    matrix = rotation(d, 7, 0, rounds)
    assert np.abs(matrix @ matrix.T - np.eye(d)).max() < 1e-14
    assert not np.array_equal(matrix, rotation(d, 8, 0, rounds))
    assert not np.array_equal(matrix, rotation(d, 7, 1, rounds))


@pytest.mark.parametrize("d", HEAD_DIMS)
@pytest.mark.parametrize("bits2", [2, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("where", [key_addresses, value_addresses])
def test_every_bit_has_one_place(d: int, bits2: int, where: object) -> None:
    """The bit addresses of a head are exactly its bits: nothing overlaps, nothing is padding."""
    assert callable(where)
    spans = spans_of(bits2, d)
    for tokens in (16, 48):
        addresses = np.concatenate([part.ravel() for part in where(spans, tokens)])
        assert np.array_equal(np.sort(addresses), np.arange(8 * head_bytes(spans, tokens)))


def test_attention_is_a_weighted_mean_over_attended_tokens() -> None:
    random = np.random.default_rng(0)
    k, v = random.standard_normal((2, 12, 2, 16))
    q = random.standard_normal((4, 16))
    out = attend64(k, v, q, 0.5, span=5, sinks=2, visible=10)
    for head in range(4):
        kept = [0, 1, 5, 6, 7, 8, 9]
        weights = np.exp([0.5 * k[t, head // 2] @ q[head] for t in kept])
        mean = sum(w * v[t, head // 2] for w, t in zip(weights, kept, strict=True)) / weights.sum()
        assert np.abs(out[head] - mean).max() < 1e-12
    assert attended(12, 10, 0, 2).tolist() == [True] * 10 + [False] * 2


def test_bytes_that_are_no_page_are_refused() -> None:
    with pytest.raises(OracleError, match="header alone"):
        read_page(b"KVPG")
    with pytest.raises(OracleError, match="magic"):
        read_page(bytes(64))
