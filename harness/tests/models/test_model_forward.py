"""The forward pass and its attentions, on the tiny models."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from kvassay import models
from kvassay.errors import InputError, ModelError, StateError
from kvassay.model_names import TinyKind
from kvassay.models.attention import Floats
from kvassay.models.functions import rms_norm, rope, rope_table
from kvassay.models.tiny import splitmix64, tiny, tiny_tokens

KINDS: tuple[TinyKind, ...] = ("gqa", "mha", "mqa")
Doubles = npt.NDArray[np.float64]


def random(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class NaiveCache:
    """A KV cache that keeps everything in lists and attends in float64, one head at a time."""

    def __init__(self) -> None:
        self.keys: dict[int, list[Floats]] = {}
        self.values: dict[int, list[Floats]] = {}

    def append(self, layer: int, k: Floats, v: Floats) -> None:
        assert len(k) == len(v) == 1
        self.keys.setdefault(layer, []).append(k[0])
        self.values.setdefault(layer, []).append(v[0])

    def attend(self, layer: int, q: Floats) -> Floats:
        keys, values = np.array(self.keys[layer], float), np.array(self.values[layer], float)
        out = np.zeros(q.shape)
        for head in range(len(q)):
            mine = head * keys.shape[1] // len(q)
            weight = np.exp(keys[:, mine] @ q[head].astype(float) / math.sqrt(q.shape[1]))
            out[head] = weight @ values[:, mine] / weight.sum()
        return out.astype(np.float32)


def oracle_logits(model: models.Model, tokens: models.Tokens) -> Doubles:
    """The forward pass again: float64, token by token, RoPE as complex numbers."""
    cfg, weights = model.config, model.weights

    def norm(x: Doubles, weight: Floats) -> Doubles:
        scaled: Doubles = x / math.sqrt(float(x @ x) / len(x) + cfg.eps)
        return scaled * weight

    def turned(x: Doubles, position: int) -> Doubles:
        pairs = x.reshape(-1, cfg.head_dim // 2, 2)
        waves = [
            complex(math.cos(position * f), math.sin(position * f))
            for f in (cfg.rope_base ** (-2 * i / cfg.head_dim) for i in range(cfg.head_dim // 2))
        ]
        z = (pairs[..., 0] + 1j * pairs[..., 1]) * np.array(waves)
        return np.stack([z.real, z.imag], axis=-1).reshape(-1)

    cache, rows = NaiveCache(), []
    for position, token in enumerate(tokens):
        x = weights.embedding[token].astype(float)
        for number, layer in enumerate(weights.layers):
            y = norm(x, layer.attention_norm)
            q, k = turned(layer.query @ y, position), turned(layer.key @ y, position)
            v = np.asarray(layer.value @ y)
            cache.append(
                number,
                k.reshape(1, cfg.kv_heads, -1).astype(np.float32),
                v.reshape(1, cfg.kv_heads, -1).astype(np.float32),
            )
            out = cache.attend(number, q.reshape(cfg.query_heads, -1).astype(np.float32))
            x = x + layer.attention_output @ out.reshape(-1)
            y = norm(x, layer.ffn_norm)
            gate = layer.gate @ y
            x = x + layer.down @ (gate / (1 + np.exp(-gate)) * (layer.up @ y))
        rows.append(weights.output @ norm(x, weights.norm))
    return np.array(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_forward_matches_an_independent_float64_pass(kind: TinyKind) -> None:
    model, tokens = tiny(kind), tiny_tokens(40)
    logits = model.forward(tokens, models.FullAttention())
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, oracle_logits(model, tokens), atol=2e-4)


def test_rope_keeps_norms_and_position_zero() -> None:
    x = random(1, 5, 3, 64)
    turned = rope(x, *rope_table(np.arange(5), 64, 1e4))
    np.testing.assert_array_equal(turned[0], x[0])
    pairs, before = turned.reshape(5, 3, 32, 2), x.reshape(5, 3, 32, 2)
    np.testing.assert_allclose((pairs**2).sum(-1), (before**2).sum(-1), rtol=1e-5)


def test_rope_scores_depend_on_the_distance_only() -> None:
    q, k = random(2, 1, 1, 64), random(3, 1, 1, 64)

    def score(at: int, distance: int) -> float:
        turned_q = rope(q, *rope_table(np.array([at + distance]), 64, 1e4))
        turned_k = rope(k, *rope_table(np.array([at]), 64, 1e4))
        return float((turned_q * turned_k).sum())

    assert score(0, 7) == pytest.approx(score(500, 7), abs=2e-3)
    assert abs(score(0, 7) - score(0, 8)) > 0.05


def test_rope_pairs_neighbouring_channels() -> None:
    x = np.zeros((1, 1, 8), dtype=np.float32)
    x[0, 0, 2] = 1.0
    turned = rope(x, *rope_table(np.array([3]), 8, 1e4))[0, 0]
    angle = 3 * 1e4 ** (-2 / 8)
    expected = np.zeros(8)
    expected[2:4] = math.cos(angle), math.sin(angle)
    np.testing.assert_allclose(turned, expected, atol=1e-6)


def test_rms_norm_gives_unit_mean_square() -> None:
    x = random(4, 3, 256) * np.float32(50)
    normed = rms_norm(x, np.ones(256, dtype=np.float32), 1e-5)
    np.testing.assert_allclose((normed**2).mean(-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("chunks", [[1] * 150, [149, 1], [64, 64, 22], [1, 100, 49]])
def test_full_attention_in_chunks_equals_one_call(chunks: list[int]) -> None:
    q, k, v = random(5, 150, 6, 64), random(6, 150, 2, 64), random(7, 150, 2, 64)
    whole = models.FullAttention()(0, q, k, v)
    chunked, parts, begin = models.FullAttention(block=48), [], 0
    for size in chunks:
        span = slice(begin, begin + size)
        parts.append(chunked(0, q[span], k[span], v[span]))
        begin += size
    assert chunked.length() == begin == 150
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-5)


@pytest.mark.parametrize(("query_heads", "kv_heads"), [(9, 3), (8, 1), (4, 4), (28, 4)])
def test_full_attention_maps_query_heads_to_kv_heads(query_heads: int, kv_heads: int) -> None:
    q, k = random(8, 10, query_heads, 16), random(9, 10, kv_heads, 16)
    v = np.empty_like(k)
    v[:] = np.arange(kv_heads, dtype=np.float32)[:, None]
    out = models.FullAttention()(0, q, k, v)
    expected = np.arange(query_heads) * kv_heads // query_heads
    np.testing.assert_allclose(
        out, np.broadcast_to(expected[:, None], out.shape), rtol=1e-5, atol=1e-6
    )


def test_full_attention_is_causal_and_scaled() -> None:
    q, k, v = random(10, 90, 4, 32), random(11, 90, 2, 32), random(12, 90, 2, 32)
    out = models.FullAttention()(0, q, k, v)
    later = k.copy()
    later[60:] = 9
    np.testing.assert_array_equal(models.FullAttention()(0, q, later, v)[:60], out[:60])
    uniform = models.FullAttention(scale=0.0)(0, q, k, v)
    np.testing.assert_allclose(uniform[89, 3], v[:, 1].mean(0), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_forward_in_chunks_equals_one_call(kind: TinyKind) -> None:
    model, tokens = tiny(kind), tiny_tokens(200)
    whole = model.forward(tokens, models.FullAttention())
    attention, parts, begin = models.FullAttention(), [], 0
    for size in (1, 130, 5, 64):
        parts.append(model.forward(tokens[begin : begin + size], attention, start=begin))
        begin += size
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-4)


def test_a_cache_in_the_loop_matches_full_attention() -> None:
    model, tokens = tiny("gqa"), tiny_tokens(60)
    cache = NaiveCache()
    driven = model.forward(tokens, models.CacheAttention(cache))
    assert [len(cache.keys[layer]) for layer in (0, 1)] == [60, 60]
    np.testing.assert_allclose(driven, model.forward(tokens, models.FullAttention()), atol=2e-4)


def test_an_attention_of_the_wrong_shape_is_refused() -> None:
    class Short(NaiveCache):
        def attend(self, layer: int, q: Floats) -> Floats:
            return super().attend(layer, q)[:1]

    with pytest.raises(InputError, match=r"layer=0.*\(1, 64\), expected \(6, 64\)"):
        tiny().forward([1, 2], models.CacheAttention(Short()))
    with pytest.raises(InputError, match="layer 0 returned float64"):
        tiny().forward([1], lambda layer, q, k, v: q.astype(float))


def test_capture_holds_what_the_attention_was_given() -> None:
    model, tokens = tiny("gqa"), tiny_tokens(30)
    got = models.capture(model, tokens)
    assert [a.shape for a in (*got.q, *got.k, *got.v)] == [(30, 6, 64)] * 2 + [(30, 2, 64)] * 4
    assert got.digest == models.token_digest(tokens) != models.token_digest(tokens[:-1])
    np.testing.assert_array_equal(
        model.logits(got.hidden), model.forward(tokens, models.FullAttention())
    )
    with pytest.raises(ValueError, match="read-only"):
        got.k[0][0] = 0
    recorder = models.CaptureAttention(models.FullAttention(), outputs=True)
    model.hidden(tokens[:20], recorder)
    model.hidden(tokens[20:], recorder, start=20)
    np.testing.assert_allclose(recorder.k[1], got.k[1], atol=1e-5)
    replay = models.FullAttention()(1, got.q[1], got.k[1], got.v[1])
    np.testing.assert_allclose(recorder.out[1], replay, atol=1e-5)
    with pytest.raises(StateError, match="outputs=True"):
        _ = models.CaptureAttention(models.FullAttention()).out


def test_greedy_continues_with_the_most_likely_tokens() -> None:
    model, prompt = tiny("mha"), tiny_tokens(12)
    chosen = model.greedy(prompt, 9, models.FullAttention())
    logits = model.forward(np.concatenate([prompt, chosen[:-1]]), models.FullAttention())
    np.testing.assert_array_equal(chosen, logits[len(prompt) - 1 :].argmax(-1))
    last = model.forward(prompt, models.FullAttention(), last_only=True)
    assert last.shape == (1, 256)
    assert int(last.argmax()) == chosen[0]


@pytest.mark.parametrize(
    ("tokens", "start", "message"),
    [
        ([256], 0, "token 256 at index 0 is outside the vocabulary of 256"),
        ([3, -1], 0, "token -1 at index 1"),
        ([], 0, "non-empty row of integers"),
        ([[1, 2]], 0, "non-empty row of integers"),
        ([0.5], 0, "non-empty row of integers"),
        ([1, 2], 4095, "positions 4095 to 4096 are outside the context of 4096"),
        ([1], -1, "positions -1 to -1"),
    ],
)
def test_bad_tokens_are_refused(tokens: list[int], start: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiny().hidden(tokens, models.FullAttention(), start)


def test_nll_is_stable_and_exact() -> None:
    logits = np.array([[1000.0, 1000.0, -1000.0], [0.0, math.log(3.0), -np.inf]], dtype=np.float32)
    np.testing.assert_allclose(
        models.nll(logits, [0, 1]), [math.log(2), math.log(4 / 3)], rtol=1e-6
    )
    with pytest.raises(InputError, match="one target a row"):
        models.nll(logits, [0])
    with pytest.raises(InputError, match=r"0\.\.2"):
        models.nll(logits, [0, 3])


def test_teacher_forced_nll_shifts_the_targets_and_ignores_the_chunk() -> None:
    model, tokens = tiny(), tiny_tokens(33)
    hidden = model.hidden(tokens, models.FullAttention())
    whole = models.nll(model.logits(hidden)[:-1], tokens[1:])
    np.testing.assert_allclose(models.hidden_nll(model, hidden, tokens, rows=7), whole, atol=1e-5)
    forced = models.teacher_forced_nll(model, tokens, models.FullAttention())
    np.testing.assert_allclose(forced, whole, atol=1e-5)
    assert models.perplexity(model, tokens, models.FullAttention()) == pytest.approx(
        math.exp(whole.mean()), rel=1e-5
    )


def test_splitmix64_gives_its_published_outputs() -> None:
    assert [hex(z) for z in splitmix64(0, 3)] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]
    assert int(splitmix64(1234567, 1)[0]) == 6457827717110365317


@pytest.mark.parametrize(
    ("kind", "heads", "golden"),
    [
        ("gqa", (6, 2), "847a620a6c79f03f2ef8619bd3317287e3c8205e98b44633784df710b2212fb7"),
        ("mha", (4, 4), "1621eb9b59e261feda70c464817daeff9a5af3b51aa16a4c2fee097867ad99b9"),
        ("mqa", (4, 1), "ef098a8b68b3e14c48c78305b3f0ba500a2ee3c1d78a17d5ec7adcdb02ab3b5f"),
    ],
)
def test_tiny_weights_are_golden(kind: TinyKind, heads: tuple[int, int], golden: str) -> None:
    config = tiny(kind).config
    assert (config.query_heads, config.kv_heads) == heads
    assert config.model_hash == golden


@pytest.mark.parametrize("kind", KINDS)
def test_tiny_attention_and_logits_are_neither_flat_nor_one_hot(kind: TinyKind) -> None:
    model = tiny(kind)
    got = models.capture(model, tiny_tokens(512))
    group = model.config.query_heads // model.config.kv_heads
    for q, k in zip(got.q, got.k, strict=True):
        scores = np.einsum("hd,thd->ht", q[-1], k.repeat(group, axis=1)) / 8
        logp = models.log_softmax(scores)
        effective = np.exp(-(np.exp(logp) * logp).sum(-1))
        assert effective.min() > 10
        assert effective.max() < 300
    logp = models.log_softmax(model.logits(got.hidden))
    assert 2.5 < -(np.exp(logp) * logp).sum(-1).mean() < 4.5


def test_an_unknown_tiny_kind_and_an_absent_tokenizer_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'gqa'"):
        tiny("gqaa")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="no tokenizer"):
        _ = tiny().tokenizer
