"""The interface of codecs: names, shapes, bytes, scores, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codec_tools import BOTH, NAMES, decoded, gaussian, make, nmse
from hypothesis import given, settings
from hypothesis import strategies as st

import kvassay
from kvassay.errors import InputError, RegistryError, SpecError
from kvassay.vector_codec import parameters, register_codecs
from kvassay_codecs.base import EncodedArrays
from kvassay_codecs.packing import pack, pack_split, split_rate, unpack, unpack_split

PROMISED = {
    *("turbo", "turboquant_mse", "turboquant_prod", "turboquant_prod_released", "qjl"),
    *("polarquant", "fast_turboquant", "drive", "eden_biased", "eden_unbiased", "rabitq", "kivi"),
    *("kvquant", "quarot", "spinquant", "qserve", "flexgen", "fp8_e4m3", "fp8_e5m2", "q8_0"),
    *("q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl", "turbovec", "kvarn", "e8", "pq"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "role"), BOTH)
def test_few_tokens_of_any_kind_are_stored(name: str, role: str) -> None:
    """Or refused because they are few, by the number of them."""
    for count in (1, 2, 3, 5):
        x = gaussian(1, count, 2, 64)
        for data in (x, np.abs(x), np.zeros_like(x), np.full_like(x, 1.5)):
            try:
                y = make(name, 64, role=role).encode(data).decode()
            except InputError as error:
                assert f"{2 * count} vectors are too few" in str(error)  # noqa: PT017
                assert name == "pq"
                continue
            assert np.isfinite(y).all()


def test_kvquant_keeps_both_of_two_tokens_apart() -> None:
    """Each is an end of its channel's range, so none is left to code."""
    x = gaussian(1, 2, 2, 64)
    y = make("kvquant", 64, role="key").encode(x).decode()
    assert np.array_equal(y, x.astype(np.float16).astype(np.float32))


def test_every_promised_name_is_there() -> None:
    assert len(PROMISED) == 29
    assert set(kvassay.codecs()) >= PROMISED


def test_the_function_and_the_module_of_that_name_live_side_by_side() -> None:
    from kvassay.streams import parse_codec

    assert callable(kvassay.codec)
    assert parse_codec("turbo:3", "keys").bits == 3


@pytest.mark.parametrize("name", NAMES)
def test_defaults_and_docstrings(name: str) -> None:
    cls = kvassay.codecs()[name]
    codec = make(name)
    assert (codec.name, codec.bits, codec.head_dim, codec.role) == (name, cls.rates[0], 128, "key")
    assert cls.paper
    assert cls.__doc__
    for parameter in set(parameters(cls)) - {"outliers", "seed"}:
        assert any(parameter in (base.__doc__ or "") for base in cls.__mro__), parameter


@pytest.mark.parametrize(("name", "role"), BOTH)
def test_shapes_scores_and_bytes(name: str, role: str) -> None:
    x, q = gaussian(1, 288, 2, 64), gaussian(2, 3, 2, 64)
    encoded = make(name, 64, role=role).encode(x)
    y = encoded.decode()
    assert y.shape == x.shape
    assert y.dtype == np.float32
    scores = encoded.score(q)
    assert scores.shape == (3, 2, 288)
    assert scores.dtype == np.float32
    expected = np.einsum("nhd,thd->nht", q.astype(np.float64), y)
    assert np.abs(scores - expected).max() < 1e-4 * np.abs(expected).max()
    assert np.abs(encoded.score(q[1]) - scores[1]).max() < 1e-5 * np.abs(expected).max()
    assert isinstance(encoded, EncodedArrays)
    assert encoded.nbytes == sum(array.nbytes for array in encoded.held.values())
    assert all(array.dtype.itemsize <= 4 for array in encoded.held.values())


@pytest.mark.parametrize(("name", "role"), BOTH)
def test_flat_vectors_are_one_head(name: str, role: str) -> None:
    x, q = gaussian(3, 288, 64), gaussian(4, 3, 64)
    codec = make(name, 64, role=role)
    flat, grid = codec.encode(x), codec.encode(x[:, np.newaxis])
    assert flat.nbytes == grid.nbytes
    assert (flat.decode() == grid.decode()[:, 0]).all()
    assert (flat.score(q) == grid.score(q[:, np.newaxis])[:, 0]).all()
    assert flat.score(q[0]).shape == (288,)


@pytest.mark.parametrize(("name", "role"), BOTH)
def test_decoding_needs_nothing_but_what_is_held(name: str, role: str) -> None:
    x = gaussian(5, 288, 2, 64)
    codec = make(name, 64, role=role).fit(x)
    encoded = codec.encode(x)
    expected = encoded.decode()
    assert isinstance(encoded, EncodedArrays)
    read_only = {part: array.copy() for part, array in encoded.held.items()}
    for array in read_only.values():
        array.flags.writeable = False
    x[:] = 0
    again = EncodedArrays(codec, encoded.shape, read_only)  # type: ignore[arg-type]
    assert (again.decode() == expected).all()
    for part in sorted(read_only):
        damaged = dict(read_only)
        if part.startswith("fitted") or not damaged[part].size:
            continue
        bits = damaged[part].copy().view(np.uint8)
        bits.reshape(-1)[:: damaged[part].dtype.itemsize] ^= 1
        damaged[part] = bits.view(damaged[part].dtype)
        if part == "sparse counts":
            continue  # a damaged count has no reading
        with np.errstate(all="ignore"):
            other = EncodedArrays(codec, encoded.shape, damaged).decode()  # type: ignore[arg-type]
        assert not np.array_equal(other, expected), f"{part} is held and never read"


@pytest.mark.parametrize(("name", "role"), BOTH)
def test_outliers_are_held_and_help(name: str, role: str) -> None:
    if name in ("fp16", "spinquant", "pq"):  # exact already; the others learn these by heart
        return
    x = gaussian(6, 288, 1, 64)
    x[..., 5] *= 40
    plain, aside = make(name, 64, role=role), make(name, 64, role=role, outliers=1)
    error = nmse(x, decoded(aside, x))
    assert error < nmse(x, decoded(plain, x))
    parts = aside.encode(x).parts
    assert parts["outlier channels"] == 288
    assert parts["outlier values"] == 2 * 288


@pytest.mark.parametrize("name", NAMES)
def test_zeros_and_constants_stay_finite(name: str) -> None:
    x = np.zeros((288, 1, 64), np.float32)
    assert (decoded(make(name, 64), x) == 0).all()
    x[:] = np.float32(3.25)
    y = decoded(make(name, 64, role="value"), x)
    assert np.isfinite(y).all()


@pytest.mark.parametrize("name", ["kivi", "flexgen", "qserve", "q4_1"])
def test_constant_groups_come_back_exactly(name: str) -> None:
    x = np.full((64, 1, 64), -1.5, np.float32)
    assert (decoded(make(name, 64, role="value"), x) == x).all()


@pytest.mark.parametrize("name", NAMES)
def test_vectors_are_stored_alike_whatever_stands_beside_them(name: str) -> None:
    """A codec that was fitted treats whole groups of tokens independently."""
    x = gaussian(7, 512, 1, 64)
    codec = make(name, 64).fit(x)
    if name == "kvquant":  # keeps the first token of what it is given as fp16
        codec = make(name, 64, first=0).fit(x)
    if name.startswith("fp8"):
        codec = make(name, 64, scale="none")
    tolerance = 1e-6 * float(np.abs(x).max())
    assert np.abs(decoded(codec, x[128:256]) - decoded(codec, x)[128:256]).max() <= tolerance


BAD: tuple[tuple[Any, type[Exception], str], ...] = (
    ({"name": "kiwi", "head_dim": 64}, SpecError, "no codec 'kiwi'; did you mean 'kivi'?"),
    ({"name": "kivi", "head_dim": 64, "bits": 5}, SpecError, "one of its rates: 2, 3, 4, 8"),
    ({"name": "kivi", "head_dim": 64, "bits": True}, SpecError, "bits True"),
    ({"name": "kivi", "head_dim": 65}, SpecError, "head_dim 65 is not a multiple of 16"),
    ({"name": "kivi", "head_dim": 512}, SpecError, "from 16 to 256"),
    ({"name": "kivi", "head_dim": 64, "role": "keys"}, SpecError, "role 'keys'"),
    ({"name": "kivi", "head_dim": 64, "gruop": 8}, SpecError, "did you mean 'group'?"),
    ({"name": "kivi", "head_dim": 64, "group": 8.5}, SpecError, "group 8.5 is not an integer"),
    ({"name": "kivi", "head_dim": 64, "residual": 33}, SpecError, "no multiple of the group"),
    ({"name": "q4_0", "head_dim": 80}, SpecError, "not a multiple of 32"),
    ({"name": "qjl", "head_dim": 64, "bits": 3, "role": "value"}, SpecError, "stored with 2"),
    ({"name": "rabitq", "head_dim": 64, "scale": "best"}, SpecError, "scale 'best'"),
    ({"name": "kvquant", "head_dim": 64, "sparse": 0.5}, SpecError, "outside 0 .. 0.25"),
    (
        {"name": "kvquant", "head_dim": 64, "rope_base": 1e4, "role": "value"},
        SpecError,
        "values have no RoPE",
    ),
    ({"name": "qserve", "head_dim": 64, "alpha": 2}, SpecError, "alpha 2"),
    ({"name": "quarot", "head_dim": 64, "clip": 0.1}, SpecError, "clip 0.1"),
    (
        {"name": "turbo", "head_dim": 64, "outliers": 40},
        SpecError,
        "outliers 40 is outside 0 .. 32",
    ),
)


@pytest.mark.parametrize(("call", "error", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_calls_are_refused_by_name(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        kvassay.codec(**call)
    assert message in str(caught.value)


NAN = gaussian(8, 8, 2, 64)
NAN[5, 1, 9] = np.nan


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (NAN, "nan at token 5, head 1, channel 9"),
        (np.full((2, 64), 7e4, np.float32), "at most 65504"),
        (np.zeros((2, 32), np.float32), "shape (2, 32)"),
        (np.zeros((0, 64), np.float32), "none of them empty"),
        (np.zeros((2, 2, 2, 64), np.float32), "expected (vectors, 64)"),
        (np.zeros((2, 64)), "dtype float64"),
        ([[0.0] * 64], "numpy array, got list"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("name", NAMES)
def test_bad_input_is_refused_by_name(name: str, x: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        make(name, 64).encode(x)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("q", "message"),
    [
        (np.zeros((3, 64), np.float32), "expected (2, 64) or (n, 2, 64)"),
        (np.full((2, 64), np.inf, np.float32), "NaN or infinity"),
        (np.zeros((2, 64)), "dtype float64"),
    ],
)
def test_bad_queries_are_refused(q: Any, message: str) -> None:
    encoded = make("kivi", 64).encode(gaussian(9, 32, 2, 64))
    with pytest.raises(InputError) as caught:
        encoded.score(q)
    assert message in str(caught.value)


def test_scales_beyond_fp16_and_other_heads_are_refused() -> None:
    with pytest.raises(InputError, match="does not fit fp16"):
        make("eden_unbiased", bits=1).encode(np.sign(gaussian(1, 2, 128)) * np.float32(65504))
    with pytest.raises(InputError, match="fitted on 2"):
        make("qserve", 64).fit(gaussian(1, 9, 2, 64)).encode(gaussian(1, 9, 3, 64))
    with pytest.raises(InputError, match="too few to learn"):
        make("pq", 64).encode(gaussian(1, 9, 64))


def test_a_name_is_registered_once() -> None:
    with pytest.raises(RegistryError, match="exists already"):
        register_codecs({"kivi": kvassay.codecs()["kivi"]})
    with pytest.raises(RegistryError, match="not a VectorCodec"):
        register_codecs({"mine": int})  # type: ignore[dict-item]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_packing_loses_nothing(bits: int, count: int, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 1 << bits, (2, count), dtype=np.uint8)
    packed = pack(codes, bits)
    assert packed.shape == (2, -(-count * bits // 8))
    assert (unpack(packed, bits, count) == codes).all()


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([0.5, 1.0, 1.5, 2.25, 2.5, 3.5]), st.sampled_from([32, 64, 128]))
def test_split_rates_are_what_they_say(bits: float, channels: int) -> None:
    split = split_rate(bits, channels)
    assert sum(n * b for n, b in split) == bits * channels
    codes = np.concatenate([np.full((3, n), (1 << b) - 1, np.uint8) for n, b in split], axis=1)
    held = pack_split(codes, split)
    assert sum(array.nbytes for array in held.values()) == 3 * bits * channels / 8
    assert (unpack_split(held, split, (3,)) == codes).all()


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([name for name in NAMES if name != "pq"]),
    st.sampled_from(["key", "value"]),
    st.integers(0, 2**32 - 1),
    st.integers(-12, 12),
)
def test_powers_of_two_pass_through(name: str, role: str, seed: int, power: int) -> None:
    """Scaling by a power of two scales what is decoded, up to the rounding of fp16 scales.

    Not so for codecs with a scale of 1: fp8's is fitted here, fp16's exponent moves along.
    """
    x = gaussian(seed % 2**31, 128, 1, 32)
    codec = make(name, 32, role=role)
    once, scaled = decoded(codec, x), decoded(codec, x * np.float32(2.0**power))
    assert nmse(x, scaled / np.float32(2.0**power)) < nmse(x, once) * 1.1 + 1e-4


@pytest.mark.parametrize(("name", "role"), BOTH)
@pytest.mark.parametrize("size", [1.0, 1e-7, 1e3])
def test_the_hosts_error_state_is_no_matter_of_a_codec(name: str, role: str, size: float) -> None:
    x = (gaussian(5, 256, 128) * np.float32(size)).astype(np.float32)
    with np.errstate(all="raise"):
        codec = make(name, role=role)
        encoded = codec.encode(x)
        assert np.isfinite(encoded.decode()).all()
        assert np.isfinite(encoded.score(x[0])).all()
