"""The transform: pinned generator, orthogonality on exactly d channels, energy."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvassay_backends.reference import transform as module
from kvassay_backends.reference.transform import SplitMix64, Transform, read_gain, store_gain

HEAD_DIMS = (64, 80, 96, 112, 128, 160, 192, 256)
ODD_HEAD_DIMS = (16, 48, 176, 320, 576)

#: (seed, stream) -> the first three numbers.
NUMBERS = {
    (0, 0): (0x1DF5DF97578D90C0, 0xBB0E8EB991D7D0F7, 0x274E21553F690ADC),
    (0, 1): (0xB4F889396BBE9B0E, 0xCA0B90A49E8E069C, 0xFB1A405A41B21F61),
    (0, 2): (0x60BC8F6C62F99CB9, 0xF8637BFB57D46FB4, 0x3E6F49562FF4612D),
    (12345, 0): (0xC954E6E300221976, 0x3066947F84B17C5B, 0x3819B442C5D0C994),
    (12345, 1): (0x0BE8A201E611D631, 0xB3853F6D538FD364, 0x4AA0AA696E4B475A),
    (12345, 2): (0xB4A62A1F78D79261, 0x241163B49D4D6009, 0x33DD01DA6D31993B),
}

#: (head dim, seed) -> SHA-256 over streams 0, 1, 2 of: s1 as bytes (1 negative), perm as
#: little-endian u16, s2 as bytes.
DIGESTS = {
    (64, 0): "955e417ab1e13dde6cbe6f9fb069fe63b65a6cf8429b137d52f4d816b1b3d1a6",
    (64, 12345): "162f1b2ee40e7ab179557042444e8f41374fa3ca66b836c5dc838b801b0088af",
    (80, 0): "061310eca676d7337a4b02492881d3f603a2e3e588485c61cc692c8de89b13aa",
    (80, 12345): "f415f0d9cff3d8b0b1d2c17a8309ad3b8c7150cf78a9d9eea3005a96ba3bb70e",
    (96, 0): "4e8c0d138a2984cef5a2e1b49b52429b47bc5ae768efca5d362c5e622de7ab9d",
    (96, 12345): "46c0b2c0f7bb8bd2fc1431e09a084e3a1a45c4509dd820efdf49efbe7da7179f",
    (112, 0): "278a43e0b8eff31a9010f88b94eb3fad8a2c87a741be7c7efb1355d41592c515",
    (112, 12345): "006486f17a9547d530e85ae884f2ec95cfba2584898fc7983c9b3cad15cfa833",
    (128, 0): "1ff7ccc0c36bae52a4296259f24015bca862b4d894fbd33f7fb68d0339853a95",
    (128, 12345): "199b77e8be50f9c2e89a19005717ce9ce4a001f383b292b2a71828c12e2f9de2",
    (160, 0): "ba4904d3fafa2ce64292788db8e04004793368afe7422b9cc11197d315c5e6fa",
    (160, 12345): "0090c1678ff78b78fc61adba68a56dda72faf0eae131eb0367a8f48a725ef484",
    (192, 0): "d3670b50f944286bf3c4fe1a4879fc8a083ae1c71850245301db6727cda73503",
    (192, 12345): "fc985e9a0817570d7a57debbbc694be2baa2e21fd0eb656c68bfd0ee7f628c71",
    (256, 0): "44e9c64e424f3e1bd11e69eeda9b4ee8bd4dba44bfe4366aaff1c135346bfeec",
    (256, 12345): "4d43c1fefe65f6373751d14568174aa44ec00d5f2e19f7083f99d26006dab438",
}


def test_the_mixer_gives_the_published_splitmix64_sequence() -> None:
    generator = SplitMix64.__new__(SplitMix64)
    generator._state = 1234567
    assert [generator.next() for _ in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@pytest.mark.parametrize("key", NUMBERS)
def test_numbers_are_golden(key: tuple[int, int]) -> None:
    generator = SplitMix64(*key)
    assert tuple(generator.next() for _ in range(3)) == NUMBERS[key]


@pytest.mark.parametrize("key", DIGESTS)
def test_signs_and_permutations_are_golden(key: tuple[int, int]) -> None:
    d, seed = key
    digest = hashlib.sha256()
    for stream in range(3):
        transform = Transform(d, 2, seed, stream)
        assert transform.perm is not None
        assert transform.s2 is not None
        digest.update((transform.s1 < 0).astype(np.uint8).tobytes())
        digest.update(transform.perm.astype("<u2").tobytes())
        digest.update((transform.s2 < 0).astype(np.uint8).tobytes())
    assert digest.hexdigest() == DIGESTS[key]


@pytest.mark.parametrize("d", HEAD_DIMS + ODD_HEAD_DIMS)
@pytest.mark.parametrize("rounds", [1, 2])
def test_transform_is_orthogonal_on_exactly_d_channels(d: int, rounds: int) -> None:
    transform = Transform(d, rounds, 3, module.KEYS)
    rows = transform.forward(np.eye(d, dtype=np.float32))
    gain = 2.0**transform.exponent
    # Entries are small integers: products of matrices are exact.
    assert (rows.astype(np.float64) @ rows.T.astype(np.float64) == gain * np.eye(d)).all()
    assert (transform.inverse(rows) == gain * np.eye(d)).all()
    assert store_gain(transform.exponent) * read_gain(transform.exponent) * gain == 1


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(HEAD_DIMS),
    st.sampled_from([1, 2]),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
)
def test_inverse_and_norm_of_random_vectors(d: int, rounds: int, seed: int, data_seed: int) -> None:
    transform = Transform(d, rounds, seed, module.VALUES)
    x = np.random.default_rng(data_seed).standard_normal((3, d), np.float32)
    y = transform.forward(x)
    gain = np.float32(2.0**transform.exponent)
    np.testing.assert_allclose(transform.inverse(y) / gain, x, atol=2e-6)
    ratio = np.linalg.norm(y, axis=1) / np.linalg.norm(x, axis=1)
    np.testing.assert_allclose(ratio, np.sqrt(gain), rtol=1e-5)


@pytest.mark.parametrize("d", HEAD_DIMS)
def test_two_rounds_spread_one_channel_over_more_than_its_block(d: int) -> None:
    transform = Transform(d, 2, 0, module.KEYS)
    y = transform.forward(np.eye(d, dtype=np.float32)[:1])[0]
    blocks = np.abs(y).reshape(-1, transform.block).max(axis=1)
    assert (blocks > 0).sum() >= min(2, d // transform.block)
    zero = np.zeros((1, d), np.float32)
    assert (transform.forward(zero) == 0).all()


@pytest.mark.parametrize("d", HEAD_DIMS)
def test_energy_in_few_channels_is_kept(d: int) -> None:
    x = np.full((1, d), 0.01, np.float32)
    x[0, 0] = 100
    x[0, :8] += np.arange(8)
    transform = Transform(d, 2, 12345, module.KEYS)
    y = transform.forward(x) * np.float32(2.0 ** (-transform.exponent / 2))
    np.testing.assert_allclose(np.linalg.norm(y), np.linalg.norm(x), rtol=1e-6)


def test_streams_and_seeds_differ() -> None:
    signs = {Transform(64, 2, seed, stream).s1.tobytes() for seed in (0, 1) for stream in range(3)}
    assert len(signs) == 6
