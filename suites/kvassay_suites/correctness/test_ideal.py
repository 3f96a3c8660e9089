"""Theory against published numbers."""

from itertools import pairwise

import pytest

from .ideal import distortion, key_bias, lloyd_max


def test_lloyd_max_centroids() -> None:
    """Max 1960, table I."""
    assert lloyd_max(2)[2:] == pytest.approx([0.4528, 1.5104], abs=1e-4)
    assert lloyd_max(3)[4:] == pytest.approx([0.2451, 0.7560, 1.3439, 2.1519], abs=1e-4)
    assert lloyd_max(4)[8] == pytest.approx(0.1284, abs=1e-4)


@pytest.mark.parametrize(
    ("stream", "codec", "d", "expected"),
    [
        ("values", "turbo:2", 64, 0.1129),
        ("values", "turbo:3", 64, 0.0325),
        ("values", "turbo:4", 64, 0.00881),
        ("keys", "turbo:2", 128, 0.1307),
        ("keys", "turbo:3", 128, 0.0347),
        ("keys", "turbo:4", 128, 0.00924),
        ("keys", "turbo:2+qjl", 128, 0.067),
        ("keys", "turbo:3+qjl", 128, 0.020),
        ("values", "kivi:2", 128, 0.1540),
        ("values", "kivi:3", 128, 0.0281),
        ("values", "kivi:4", 128, 0.0061),
    ],
)
def test_distortion(stream: str, codec: str, d: int, expected: float) -> None:
    """Independent quadrature and sampling: rotated Lloyd-Max, sign projection, min-max by 32."""
    assert distortion(stream, codec, d) == pytest.approx(expected, rel=0.06)


def test_rates_are_far_apart_compared_with_the_band() -> None:
    """Half a bit more or less moves the distortion by more than the rule's band of 10 %."""
    rates = ["turbo:2", "turbo:2.5", "turbo:3", "turbo:3.5", "turbo:4"]
    found = [distortion("values", rate, 128) for rate in rates]
    assert all(a > 1.4 * b for a, b in pairwise(found))


def test_min_max_rounding_pushes_outwards() -> None:
    bias, doubt = key_bias("kivi:2", 128)
    assert 0.01 < bias < 0.025
    assert doubt < 0.002
    assert key_bias("turbo:2", 128) == (0.0, 0.0)
