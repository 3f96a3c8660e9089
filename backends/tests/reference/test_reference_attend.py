"""Attention of the reference: against decode-then-attend in float64, and piece by piece."""

from decimal import Decimal, getcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kvassay import Spec
from kvassay.page.layout import PageLayout, read_codes
from kvassay.protocol import Cache
from kvassay.spec import LayerSpec
from kvassay_backends.reference import ReferenceBackend, arithmetic, codebook, kivi, scales
from kvassay_backends.reference.transform import Transform

BACKEND = ReferenceBackend()
F64 = NDArray[np.float64]
F32 = NDArray[np.float32]
CODECS: list[dict[str, Any]] = [
    {"keys": "fp16", "values": "fp16"},
    {"keys": "turbo:4", "values": "turbo:4", "key_centre": "page", "value_centre": "frozen"},
    {"keys": "turbo:3.5", "values": "turbo:2.5", "key_centre": "frozen", "scale": "u8log"},
    {"keys": "turbo:2", "values": "turbo:3", "rounds": 1, "scale": "fp16"},
    {"keys": "turbo:2.5+qjl", "values": "turbo:3.5", "rounds": 1},
    {"keys": "turbo:3+qjl", "values": "kivi:2", "value_centre": "frozen"},
    {"keys": "kivi:4", "values": "kivi:3", "key_centre": "page"},
    {"keys": "kivi:2", "values": "turbo:2", "key_centre": "frozen"},
]


def spec_of(**fields: Any) -> Spec:
    shape: dict[str, Any] = {"layers": 1, "kv_heads": 2, "query_heads": 6, "head_dim": 48}
    return Spec(**{**shape, "page_tokens": 16, "sinks": 2, "window": 5, **fields})


def normal(*shape: int, seed: int = 0) -> F32:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def filled(spec: Spec, n: int, scale: float = 1.0) -> tuple[Cache, F32]:
    x = normal(2, n, spec.kv_heads, spec.head_dim) * np.float32(scale)
    cache = BACKEND.prepare(spec)
    cache.append(0, x[0], x[1])
    return cache, x


def half(x: NDArray[Any]) -> F64:
    out: F64 = x.astype(np.float16).astype(np.float64)
    return out


def matrix(layer: LayerSpec, stream: int) -> F64:
    """The transform as an orthogonal matrix: rows @ matrix is the rotated row."""
    transform = Transform(layer.head_dim, layer.rounds, layer.seed, stream)
    rows = transform.forward(np.eye(layer.head_dim, dtype=np.float32)).astype(np.float64)
    return np.asarray(rows * 2.0 ** (-transform.exponent / 2))


def page_scales(layer: LayerSpec, page: bytes, stored: str, maxima: str) -> F64:
    """Scales (heads, tokens, 1), in units where the transform is orthogonal."""
    layout = PageLayout(layer)
    numbers = layout[stored].read(page).astype(np.float64)
    if layer.scale == "u8":
        numbers = numbers / 255
    if layer.scale == "u8log":
        numbers = np.where(numbers == 0, 0, 2.0 ** (-(255 - numbers) / 16))
    if layer.scale != "fp16":
        numbers = numbers * layout[maxima].read(page)[:, np.newaxis]
    exponent = layer.rounds * ((layer.head_dim & -layer.head_dim).bit_length() - 1)
    # Scales were stored times 2^-ceil(E/2) for y, which is 2^(E/2) times the orthogonal one.
    return np.asarray(numbers * 2.0 ** ((exponent + 1) // 2 - exponent / 2))[..., np.newaxis]


def decoded(layer: LayerSpec, page: bytes, stream: str) -> F64:
    """What a page stands for, (tokens, heads, d) in float64, before means are added back."""
    codec = layer.keys if stream == "keys" else layer.values
    name = stream.removesuffix("s")
    codes = read_codes(page, layer, stream)
    layout = PageLayout(layer)
    if codec.family == "fp16":
        return codes.astype(np.float64).swapaxes(0, 1)
    if codec.family == "kivi":
        steps, minima = (
            layout[f"{name}_{part}"].read(page).astype(np.float64) for part in ("steps", "minima")
        )
        axis = 1 if stream == "keys" else 2
        if stream == "values":
            steps, minima = steps.swapaxes(1, 2), minima.swapaxes(1, 2)
        steps, minima = (
            np.repeat(a, 32, axis).take(range(codes.shape[axis]), axis) for a in (steps, minima)
        )
        return np.asarray(minima + codes * steps).swapaxes(0, 1)
    c = np.zeros(codes.shape)
    for span in codebook.spans(codec, layer.head_dim):
        c[..., span.channels] = span.centroids[codes[..., span.channels]]
    y = c * page_scales(layer, page, f"{name}_scales", f"{name}_maxima")
    if codec.qjl:
        raw = layout["key_signs"].read(page)
        tiles = np.unpackbits(raw, axis=-1, bitorder="little").reshape(len(raw), -1, 12, 16, 4)
        signs = tiles.swapaxes(2, 3).reshape(codes.shape) * 2.0 - 1
        norms = page_scales(layer, page, "key_norms", "norm_maxima")
        d = layer.head_dim
        y = y + norms * np.sqrt(np.pi / 2 / d) * (signs @ matrix(layer, 2).T)
    return np.asarray(y @ matrix(layer, 0 if stream == "keys" else 1).T).swapaxes(0, 1)


def stand_ins(spec: Spec, cache: Cache, x: F32) -> tuple[F64, F64]:
    """The keys and values (tokens, heads, d) that the cache really attends to."""
    layer = spec.layer(0)
    k, v = half(x[0]), half(x[1])
    first = slice(layer.sinks, layer.sinks + layer.page_tokens)
    k0, v0 = (half(a[first].mean(axis=0)) for a in (k, v))
    for i, page in enumerate(cache.pages(0)):
        where = slice(layer.sinks + i * 16, layer.sinks + (i + 1) * 16)
        k[where] = decoded(layer, page, "keys")
        v[where] = decoded(layer, page, "values")
        if layer.key_centre == "page":
            k[where] += PageLayout(layer)["key_mean"].read(page).astype(np.float64)
        if layer.key_centre == "frozen":
            k[where] += k0
        if layer.value_centre == "frozen":
            v[where] += v0
    return k, v


def dense(spec: Spec, k: F64, v: F64, q: F32, visible: int) -> tuple[F64, F64]:
    """Logits (query_heads, tokens), -inf where not attended, and outputs, in float64."""
    layer = spec.layer(0)
    j = np.arange(len(k))
    seen = j < visible
    if layer.span:
        seen &= (j < layer.sinks) | (j >= visible - layer.span)
    head = np.arange(spec.query_heads) * spec.kv_heads // spec.query_heads
    t = np.einsum("hd,jhd->hj", q.astype(np.float64), k[:, head]) * layer.softmax_scale
    t = np.where(seen, t, -np.inf)
    w = np.exp(t - t.max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    return t, np.einsum("hj,jhd->hd", w, v[:, head])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("span", [None, 30])
def test_attention_is_that_over_the_decoded_tokens(codec: dict[str, Any], span: int | None) -> None:
    spec = spec_of(**codec, span=span)
    cache, x = filled(spec, 330)
    q = normal(spec.query_heads, spec.head_dim, seed=5)
    if span:  # pages that left the span are not shown any more: keep them readable
        whole, _ = filled(spec_of(**codec), 330)
        k, v = stand_ins(spec, whole, x)
    else:
        k, v = stand_ins(spec, cache, x)
    logits, outputs = dense(spec, k, v, q, 330)
    found = cache.scores(0, q)
    assert (np.isinf(found) == np.isinf(logits)).all()
    seen = np.isfinite(logits)
    np.testing.assert_allclose(found[seen], logits[seen], atol=0.04)
    np.testing.assert_allclose(cache.attend(0, q), outputs, atol=0.01)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("span", [None, 25])
def test_many_queries_equal_single_ones_over_the_same_state(
    codec: dict[str, Any], span: int | None
) -> None:
    spec = spec_of(**codec, span=span)
    cache, x = filled(spec, 100)
    n = 40 if span is None else 30
    q = normal(n, spec.query_heads, spec.head_dim, seed=3)
    together = cache.attend(0, q)
    assert together.shape == q.shape
    for part in (1, 7):
        assert cache.attend(0, q[-part:]).tobytes() == together[-part:].tobytes()
    assert cache.attend(0, q[-1]).tobytes() == together[-1].tobytes()
    k, v = stand_ins(spec_of(**codec), filled(spec_of(**codec), 100)[0], x)
    for i in (0, 9, n - 1):
        _, outputs = dense(spec, k, v, q[i], 100 - n + 1 + i)
        np.testing.assert_allclose(together[i], outputs, atol=0.02)


@pytest.mark.parametrize("codec", CODECS)
def test_each_query_head_reads_its_kv_head(codec: dict[str, Any]) -> None:
    spec = spec_of(**codec, kv_heads=3, query_heads=9)
    cache = BACKEND.prepare(spec)
    v = np.broadcast_to(np.arange(3, dtype=np.float32)[:, np.newaxis], (60, 3, 48))
    cache.append(0, normal(60, 3, 48), v)
    out = cache.attend(0, normal(9, 48, seed=1))
    np.testing.assert_allclose(out.mean(axis=1), np.repeat([0, 1, 2], 3), atol=0.15)


@pytest.mark.parametrize("codec", CODECS)
def test_zero_tokens_score_zero_and_weigh_evenly(codec: dict[str, Any]) -> None:
    spec = spec_of(**codec)
    cache = BACKEND.prepare(spec)
    zero = np.zeros((60, 2, 48), np.float32)
    cache.append(0, zero, zero)
    q = normal(6, 48)
    assert (cache.scores(0, q) == 0).all()
    assert cache.attend(0, q).tobytes() == np.zeros((6, 48), np.float32).tobytes()


@pytest.mark.parametrize("codec", CODECS[1:])
def test_far_logits_are_skipped_without_a_trace(codec: dict[str, Any]) -> None:
    """One token far above the rest: the output is its value, nothing overflows."""
    spec = spec_of(**codec)
    cache, _ = filled(spec, 200)
    key = np.full((1, 2, 48), 100, np.float32)
    value = normal(1, 2, 48, seed=8)
    cache.append(0, key, value)
    q = np.full((6, 48), 100, np.float32)
    assert (cache.attend(0, q) == np.repeat(half(value[0]), 3, axis=0)).all()


@pytest.mark.parametrize("size", [1e-4, 1.0, 6e4 / 6])
@pytest.mark.parametrize("codec", CODECS)
def test_magnitudes_up_to_fp16_stay_finite(codec: dict[str, Any], size: float) -> None:
    spec = spec_of(**codec, softmax_scale=2.0**20)
    cache, x = filled(spec, 90, size)
    q = np.full((6, 48), 65504, np.float32)
    assert np.isfinite(cache.scores(0, q)).all()
    out = cache.attend(0, q)
    assert (np.abs(out) <= 1.5 * np.abs(x[1]).max()).all()


def test_ex2_is_within_its_stated_error() -> None:
    x = -np.linspace(0, 64, 200_001).astype(np.float32)
    exact = np.exp2(x.astype(np.float64))
    assert np.abs(arithmetic.ex2(x) / exact - 1).max() <= 1.93e-7
    assert arithmetic.ex2(np.array([0, -64.5, -1e30], np.float32)).tolist() == [1, 0, 0]


def test_rounding_is_to_nearest_even() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 4194303.5], np.float32)
    assert arithmetic.rne(x).tolist() == [0, 2, 2, 0, -2, -2, 0, 4194304]
    big = np.array([65520, -65520, 1e30, 65519, 5.96e-8, 2e-8], np.float32)
    expected = [65504, -65504, 65504, 65504, 2.0**-24, 0]
    assert arithmetic.f16s(big).tolist() == expected


def test_sums_go_in_their_written_order() -> None:
    x = np.zeros(48, np.float32)
    x[[0, 16, 32]] = 1, 2.0**24, -(2.0**24)  # lane 0 loses the 1, whatever the other lanes do
    assert arithmetic.d16(x, np.ones(48, np.float32)) == 0
    x[[0, 8, 32]] = 0, 1, -(2.0**24)
    assert arithmetic.s16(x) == 1
    lanes = np.array([2.0**24, *[0] * 3, 1, *[0] * 3, 1, *[0] * 7], np.float32)
    # s[0] + s[8] first: 2^24 + 1 rounds down; then + s[4] rounds down again.
    assert arithmetic.s16(lanes) == 2.0**24
    assert arithmetic.s16(np.array([1.0, 2.0, 3.0], np.float32)) == 6


def test_scale_tables_are_what_the_contract_says() -> None:
    getcontext().prec = 40
    for m in range(16):
        full = Decimal(2) ** (Decimal(-m) / 16)
        half_step = Decimal(2) ** (-(Decimal(m) + Decimal("0.5")) / 16)
        assert codebook.FULL[m] == np.float32(float(full))
        assert codebook.HALF[m] == np.float32(float(half_step))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["u8", "u8log", "fp16"]), st.integers(0, 2**32 - 1))
def test_stored_scales_read_back_within_a_step(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    s = np.exp2(rng.uniform(-6, 6, (3, 16))).astype(np.float32)
    s[0, 3] = 0
    s[2] = 0
    stored = scales.store_scales(kind, s)
    back = stored.factor * stored.unit[:, np.newaxis]
    assert (back[2] == 0).all()
    assert back[0, 3] == 0
    step = {"u8": 0.502 / 255 * s.max(axis=1, keepdims=True), "u8log": s * 0.0222, "fp16": s / 2000}
    assert (np.abs(back - s) <= step[kind]).all()


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([2, 3, 4]), st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 1, 1e4]))
def test_kivi_is_within_half_a_step(bits: int, seed: int, size: float) -> None:
    r = normal(2, 48, 48, seed=seed) * np.float32(size)
    for encode, axis in ((kivi.encode_keys, 1), (kivi.encode_values, 2)):
        codes, steps, minima = encode(r, bits)
        if axis == 2:
            steps, minima = steps.swapaxes(1, 2), minima.swapaxes(1, 2)
        wide = [np.repeat(half(a), 32, axis).take(range(48), axis) for a in (steps, minima)]
        back = wide[1] + codes * wide[0]
        # Besides half a step: lo and step are fp16, so the ends may be off by their rounding.
        slack = np.abs(wide[1]) / 2048 + 2**bits * (wide[0] / 2048 + 2.0**-25)
        assert (np.abs(back - r) <= wide[0] / 2 + slack).all()


def test_a_centred_constant_whose_minimum_rounds_up_has_step_zero() -> None:
    r = np.full((1, 16, 16), 1 + 0.75 * 2.0**-10, np.float32)
    codes, steps, minima = kivi.encode_keys(r, 2)
    assert (steps == 0).all()
    assert not np.signbit(steps).any()
    assert (codes == 0).all()
    assert (minima == np.float16(1 + 2.0**-10)).all()


def test_fp16_pages_hold_what_was_appended() -> None:
    spec = spec_of(window=0, sinks=0)
    cache, x = filled(spec, 16)
    k, v = stand_ins(spec, cache, x)
    assert (k == half(x[0])).all()
    assert (v == half(x[1])).all()
