"""Small models of every architecture against an oracle that reads the tensors by itself.

The oracle is the papers' text in float64, one token, one head and one key at a time: it shares no
code with the forward pass and takes its weights from what was written, not from what was loaded.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from model_files import HIDDEN, Array, Form, tensors, write_gguf

import kvassay
from kvassay import models
from kvassay.arms import StoredAttention, fitted, parse_arm
from kvassay.errors import InputError, ModelError
from kvassay.models.loading import read_shape

Doubles = npt.NDArray[np.float64]

HEADS = {"mha": (4, 4), "gqa": (4, 2), "mqa": (4, 1)}
FORMS = {
    f"{architecture}-{kind}": Form(architecture, query_heads, kv_heads, **more)
    for architecture, more in {
        "llama": {},
        "qwen2": {},
        "gemma3": {"head_dim": 16, "layers": 7, "span": 11},
    }.items()
    for kind, (query_heads, kv_heads) in HEADS.items()
}
TOKENS = [int(token) for token in np.random.default_rng(3).integers(0, 263, 40)]


class Oracle:
    """Logits of a small model, its layers' keys and values in lists."""

    def __init__(self, form: Form, weights: dict[str, Array]) -> None:
        self._form = form
        self._weights = {name: array.astype(np.float64) for name, array in weights.items()}
        self._keys: dict[tuple[int, int], list[Doubles]] = {}
        self._values: dict[tuple[int, int], list[Doubles]] = {}

    def logits(self, tokens: list[int]) -> Doubles:
        """One row a token."""
        return np.array([self._next(position, token) for position, token in enumerate(tokens)])

    def _next(self, position: int, token: int) -> Doubles:
        gemma = self._form.architecture == "gemma3"
        embedding = self._weights["token_embd.weight"]
        x = embedding[token] * (math.sqrt(HIDDEN) if gemma else 1.0)
        for layer in range(self._form.layers):
            y = self._attention(layer, position, self._norm(x, f"blk.{layer}.attn_norm"))
            x = x + (self._norm(y, f"blk.{layer}.post_attention_norm") if gemma else y)
            y = self._feed_forward(layer, self._norm(x, f"blk.{layer}.ffn_norm"))
            x = x + (self._norm(y, f"blk.{layer}.post_ffw_norm") if gemma else y)
        logits: Doubles = embedding @ self._norm(x, "output_norm")
        return logits

    def _norm(self, x: Doubles, name: str) -> Doubles:
        mean_square = sum(float(value) ** 2 for value in x) / len(x)
        normed: Doubles = x / math.sqrt(mean_square + 1e-5) * self._weights[f"{name}.weight"]
        return normed

    def _project(self, layer: int, name: str, x: Doubles) -> Doubles:
        projected: Doubles = self._weights[f"blk.{layer}.attn_{name}.weight"] @ x
        if self._form.architecture == "qwen2":
            projected = projected + self._weights[f"blk.{layer}.attn_{name}.bias"]
        return projected.reshape(-1, self._form.head_dim)

    def _turned(self, x: Doubles, layer: int, position: int) -> Doubles:
        form, half = self._form, self._form.head_dim // 2
        local = form.architecture == "llama" or (form.span and (layer + 1) % 6)
        base = 1e4 if local else 1e6
        out = np.empty_like(x)
        for i in range(half):
            interleaved = form.architecture == "llama"
            one, other = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
            angle = position * base ** (-2 * i / form.head_dim)
            out[one] = x[one] * math.cos(angle) - x[other] * math.sin(angle)
            out[other] = x[one] * math.sin(angle) + x[other] * math.cos(angle)
        return out

    def _attention(self, layer: int, position: int, x: Doubles) -> Doubles:
        form = self._form
        q, k, v = (self._project(layer, name, x) for name in "qkv")
        if form.architecture == "gemma3":
            q = np.array([self._norm(head, f"blk.{layer}.attn_q_norm") for head in q])
            k = np.array([self._norm(head, f"blk.{layer}.attn_k_norm") for head in k])
        for head in range(form.kv_heads):
            turned = self._turned(k[head], layer, position)
            self._keys.setdefault((layer, head), []).append(turned)
            self._values.setdefault((layer, head), []).append(v[head])
        first = max(0, position + 1 - form.span) if form.span and (layer + 1) % 6 else 0
        outs = []
        for head in range(form.query_heads):
            mine = head // (form.query_heads // form.kv_heads)
            turned = self._turned(q[head], layer, position) / math.sqrt(form.head_dim)
            keys = self._keys[layer, mine][first:]
            weights = [math.exp(float(turned @ key)) for key in keys]
            values = self._values[layer, mine][first:]
            outs.append(sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights))
        joined: Doubles = self._weights[f"blk.{layer}.attn_output.weight"] @ np.concatenate(outs)
        return joined

    def _feed_forward(self, layer: int, x: Doubles) -> Doubles:
        gate = self._weights[f"blk.{layer}.ffn_gate.weight"] @ x
        up = self._weights[f"blk.{layer}.ffn_up.weight"] @ x
        active = [self._active(float(value)) for value in gate]
        down: Doubles = self._weights[f"blk.{layer}.ffn_down.weight"] @ (np.array(active) * up)
        return down

    def _active(self, x: float) -> float:
        if self._form.architecture == "gemma3":
            inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
            return 0.5 * x * (1 + math.tanh(inner))
        return x / (1 + math.exp(-x))


def loaded(folder: Path, form: Form, **more: Any) -> models.Model:
    return models.load(write_gguf(folder / "small.gguf", form=form, **more))


@pytest.mark.parametrize("name", FORMS)
def test_logits_are_those_of_the_oracle(tmp_path: Path, name: str) -> None:
    form = FORMS[name]
    model = loaded(tmp_path, form)
    expected = Oracle(form, tensors(form)).logits(TOKENS)
    found = model.forward(TOKENS, model.full_attention())
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(found, expected, atol=1e-4)


Fault = Callable[[dict[str, Array]], None]


def _no_key_bias(weights: dict[str, Array]) -> None:
    weights["blk.0.attn_k.bias"][:] = 0


def _no_head_norm(weights: dict[str, Array]) -> None:
    weights["blk.6.attn_k_norm.weight"][:] = 1


def _other_after(weights: dict[str, Array]) -> None:
    weights["blk.2.post_ffw_norm.weight"] *= np.float32(1.5)


@pytest.mark.parametrize(
    ("name", "fault"),
    [("qwen2-gqa", _no_key_bias), ("gemma3-gqa", _no_head_norm), ("gemma3-mqa", _other_after)],
)
def test_the_oracle_sees_each_part_of_an_architecture(
    tmp_path: Path, name: str, fault: Fault
) -> None:
    """A model that lacks it is further away than the tolerance."""
    form = FORMS[name]
    model = loaded(tmp_path, form, change=fault)
    expected = Oracle(form, tensors(form)).logits(TOKENS)
    found = model.forward(TOKENS, model.full_attention())
    assert np.abs(found - expected).max() > 1e-3


@pytest.mark.parametrize(
    ("key", "value"),
    [("span", 12), ("global_every", 5), ("local_rope_base", 1e6), ("softmax_scale", 0.3)],
)
def test_the_oracle_sees_what_sliding_layers_have(tmp_path: Path, key: str, value: Any) -> None:
    form = FORMS["gemma3-gqa"]
    model = loaded(tmp_path, form)
    changed = models.Model(dataclasses.replace(model.config, **{key: value}), model.weights)
    expected = Oracle(form, tensors(form)).logits(TOKENS)
    found = changed.forward(TOKENS, changed.full_attention())
    assert np.abs(found - expected).max() > 1e-3


@pytest.mark.parametrize("name", ["qwen2-gqa", "gemma3-gqa"])
def test_chunks_and_a_cache_in_the_loop_give_the_same_logits(tmp_path: Path, name: str) -> None:
    form = FORMS[name]
    model = loaded(tmp_path, Form(form.architecture, 4, 2, 16, form.layers, form.span))
    whole = model.forward(TOKENS, model.full_attention())
    attention, parts, begin = model.full_attention(), [], 0
    for size in (1, 17, 22):
        parts.append(model.forward(TOKENS[begin : begin + size], attention, start=begin))
        begin += size
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-4)
    spec = kvassay.preset("fp16", **model.config.shape)
    with kvassay.load("reference").prepare(spec) as cache:
        cached = model.forward(TOKENS, models.CacheAttention(cache))
    np.testing.assert_allclose(cached, whole, atol=5e-3)  # keys and values in fp16


def test_a_preset_gets_spans_and_no_sinks_in_sliding_layers(tmp_path: Path) -> None:
    model = loaded(tmp_path, FORMS["gemma3-gqa"])
    spec = kvassay.preset("turbo", **model.config.shape)
    assert [(layer.span, layer.sinks) for layer in spec.layer_specs] == [
        *[(11, 0)] * 5,
        (0, 4),
        (11, 0),
    ]


def test_attention_with_other_spans_is_refused(tmp_path: Path) -> None:
    model = loaded(tmp_path, FORMS["gemma3-gqa"])
    with pytest.raises(InputError, match=r"use model\.full_attention\(\)"):
        model.hidden(TOKENS, models.FullAttention())
    with pytest.raises(InputError, match="attend 11 tokens"):
        model.hidden(TOKENS, models.CaptureAttention(models.FullAttention()))
    shape = {**model.config.shape, "layer_overrides": {}}
    with (
        kvassay.load("reference").prepare(kvassay.preset("fp16", **shape)) as cache,
        pytest.raises(InputError, match="the attention has other spans"),
    ):
        model.hidden(TOKENS, models.CacheAttention(cache))


def test_rope_factors_and_linear_scaling_change_the_frequencies(tmp_path: Path) -> None:
    form = FORMS["llama-gqa"]

    def factors(weights: dict[str, Array]) -> None:
        weights["rope_freqs.weight"] = np.full(4, 4, dtype=np.float32)

    linear: dict[str, Any] = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    plain = models.load(write_gguf(tmp_path / "plain.gguf", form=form))
    by_factors = models.load(write_gguf(tmp_path / "factors.gguf", form=form, change=factors))
    by_position = models.load(write_gguf(tmp_path / "linear.gguf", form=form, metadata=linear))
    logits = [m.forward(TOKENS, m.full_attention()) for m in (plain, by_factors, by_position)]
    assert np.abs(logits[0] - logits[1]).max() > 1e-3
    np.testing.assert_allclose(logits[1], logits[2], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "metadata", "message"),
    [
        ("gemma3-gqa", {"gemma3.attention.sliding_window": 0}, "span is 0, must be positive"),
        ("gemma3-gqa", {"gemma3.attn_logit_softcapping": 50.0}, "softcapping' is set"),
        ("gemma3-gqa", {"gemma3.attention.value_length": 8}, "supported: the head dim, 16"),
        ("gemma3-gqa", {"gemma3.rope.freq_base_swa": "x"}, "expected a finite number"),
        ("qwen2-gqa", {"qwen2.attention.sliding_window": 64}, "sliding_window' is set"),
        ("qwen2-gqa", {"qwen2.rope.scaling.type": "yarn"}, "supported: none, linear"),
        ("qwen2-gqa", {"qwen2.rope.scaling.type": "linear"}, r"scaling\.factor' is missing"),
        (
            "llama-gqa",
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0},
            "rope_divisor is 0",
        ),
    ],
)
def test_a_wrong_value_is_named(
    tmp_path: Path, name: str, metadata: dict[str, float | str], message: str
) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        loaded(tmp_path, FORMS[name], metadata=metadata)
    assert "small.gguf" in str(caught.value)


def _drop(name: str) -> Fault:
    def fault(weights: dict[str, Array]) -> None:
        del weights[name]

    return fault


def _add(name: str, size: int, value: float = 0.0) -> Fault:
    def fault(weights: dict[str, Array]) -> None:
        weights[name] = np.full(size, value, dtype=np.float32)

    return fault


@pytest.mark.parametrize(
    ("name", "fault", "message"),
    [
        ("qwen2-gqa", _drop("blk.1.attn_k.bias"), r"'blk\.1\.attn_k\.bias' is missing"),
        ("qwen2-gqa", _add("blk.0.attn_output.bias", 32), "not part of a plain qwen2 model"),
        ("qwen2-gqa", _add("blk.0.attn_v.bias", 7), r"shape \(7,\), expected \(16,\)"),
        ("gemma3-gqa", _drop("blk.3.attn_q_norm.weight"), r"attn_q_norm\.weight' is missing"),
        ("gemma3-gqa", _add("blk.0.attn_k.bias", 32), "not part of a plain gemma3 model"),
        ("llama-gqa", _add("blk.0.attn_q_norm.weight", 8), "not part of a plain llama model"),
        ("llama-gqa", _add("rope_freqs.weight", 4, 0.0), "divisors that are not positive"),
        ("llama-gqa", _add("rope_freqs.weight", 5, 1.0), r"shape \(5,\), expected \(4,\)"),
    ],
)
def test_a_wrong_tensor_is_named(tmp_path: Path, name: str, fault: Fault, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        loaded(tmp_path, FORMS[name], change=fault)


def test_the_shape_needs_no_tokenizer(tmp_path: Path) -> None:
    form = FORMS["gemma3-mqa"]
    path = write_gguf(tmp_path / "small.gguf", form=form, omit=["tokenizer.ggml.model"])
    config = read_shape(models.GGUFFile(path))
    assert (config.architecture, config.head_dim, config.span) == ("gemma3", 16, 11)
    assert config.spans == (11, 11, 11, 11, 11, None, 11)


def test_an_arm_on_sliding_layers_is_what_a_cache_of_that_spec_gives(tmp_path: Path) -> None:
    model = loaded(tmp_path, Form("gemma3", 4, 2, 16, 7, span=40))
    tokens = [int(token) for token in np.random.default_rng(5).integers(0, 263, 120)]
    policy: dict[str, Any] = {"window": 8, "sinks": 2, "page_tokens": 16, "key_centre": "page"}
    spec = kvassay.Spec(**model.config.shape, keys="turbo:2", values="turbo:2", **policy)
    full = model.hidden(tokens, model.full_attention())
    with kvassay.load("native").prepare(spec) as cache:
        there = model.hidden(tokens, models.CacheAttention(cache))
    arm = parse_arm("turbo:2,page=16/turbo:2,page=16 window=8 sinks=2 page=16")
    learn = models.capture(model, tokens)

    def far(config: models.ModelConfig) -> float:
        attention = StoredAttention(arm, fitted(arm, config, learn), config)
        here = models.Model(config, model.weights).hidden(tokens, attention)
        return float(np.linalg.norm(here - there) / np.linalg.norm(there - full))

    assert far(model.config) < 0.3
    # The test of the test: a page more in the span is another cache.
    assert far(dataclasses.replace(model.config, span=56)) > 0.5
