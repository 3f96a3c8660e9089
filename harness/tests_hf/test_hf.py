"""Models of transformers, tiny and randomly initialised: generation and captured tensors.

Not among the default tests, since it needs torch: `nox -s hf`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tiny_models import PROMPT

import kvassay
from kvassay.captured import open_captured
from kvassay.cli import run
from kvassay.errors import InputError, StateError, UnsupportedError
from kvassay.hf import KvassayCache, capture_model
from kvassay.models import token_digest

SHAPE = {"layers": 2, "query_heads": 4, "kv_heads": 2, "head_dim": 64}
BACKENDS = ("native", "reference")


def greedy(model: Any, cache: Any, tokens: int = 24) -> list[int]:
    ids = torch.tensor([PROMPT])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        cache=cache,
        max_new_tokens=tokens,
        do_sample=False,
    )
    found: list[int] = out[0, len(PROMPT) :].tolist()
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_greedy_text_with_fp16_is_that_of_the_plain_cache(model: Any, backend: str) -> None:
    plain = greedy(model, transformers.DynamicCache())
    assert len(set(plain)) > 5, "a text that says something"
    cache = KvassayCache(model, preset="fp16", backend=backend)
    assert greedy(model, cache) == plain
    assert cache.kvassay.length == len(PROMPT) + len(plain) - 1
    assert cache.get_seq_length() == cache.kvassay.length


def test_a_quantized_cache_is_smaller_and_near(model: Any) -> None:
    ids = torch.tensor([PROMPT])
    with torch.no_grad():
        exact = model(ids, use_cache=False).logits[0, -1]
        logits = {}
        for preset in ("fp16", "turbo", "kivi"):
            cache = KvassayCache(model, preset=preset, window=32)
            logits[preset] = model(ids, cache=cache).logits[0, -1]
            if preset == "turbo":
                assert cache.kvassay.counters.pages_encoded > 0
    drift = {name: float((x - exact).norm() / exact.norm()) for name, x in logits.items()}
    assert drift["fp16"] < 2e-3
    assert drift["fp16"] < drift["turbo"] < 1
    assert all(np.isfinite(list(drift.values())))


def test_a_text_goes_on_after_a_crop(model: Any) -> None:
    plain, ours = transformers.DynamicCache(), KvassayCache(model, preset="fp16", window=256)
    with torch.no_grad():
        for cache, attention in ((plain, "sdpa"), (ours, "kvassay")):
            model.set_attn_implementation(attention)
            model(torch.tensor([PROMPT]), cache=cache)
            cache.crop(-50)
        assert ours.get_seq_length() == plain.get_seq_length() == len(PROMPT) - 50
        step = torch.tensor([[9]])
        model.set_attn_implementation("sdpa")
        expected = model(step, cache=plain).logits
        model.set_attn_implementation("kvassay")
        assert torch.allclose(model(step, cache=ours).logits, expected, atol=5e-2)
    ours.reset()
    assert ours.get_seq_length() == 0


def test_another_attention_function_is_noticed(model: Any) -> None:
    """The test of the test: attention that sees the new tokens alone must not go on unseen."""
    cache = KvassayCache(model, preset="fp16")
    model.set_attn_implementation("sdpa")
    with pytest.raises(StateError, match="did not go through kvassay"):
        greedy(model, cache)


def test_what_it_cannot_do_is_refused(model: Any) -> None:
    KvassayCache(model)
    with pytest.raises(StateError, match="without a KvassayCache"):
        model(torch.tensor([PROMPT]), use_cache=False)
    cache = KvassayCache(model, softmax_scale=0.5)
    with pytest.raises(UnsupportedError, match="softmax_scale"):
        model(torch.tensor([PROMPT]), cache=cache)
    assert cache.kvassay.length == cache.get_seq_length() == 0


# --- captured tensors -----------------------------------------------------------------------------


def test_captured_tensors_are_what_the_model_attends_with(model: Any, tmp_path: Path) -> None:
    before = model.config._attn_implementation
    file = capture_model(model, PROMPT, tmp_path / "m.safetensors", name="tiny")
    assert model.config._attn_implementation == before
    assert file.provenance.text_digest == token_digest(PROMPT)
    assert (file.layers, file.tokens) == ((0, 1), len(PROMPT))
    assert (file.query_heads, file.kv_heads, file.head_dim) == (4, 2, 64)
    rope = file.provenance.rope
    assert rope is not None
    assert (rope.dims, rope.order) == (64, "half")
    # An fp16 cache of the captured tensors holds what the cache of the running model holds.
    ran = KvassayCache(model, preset="fp16")
    with torch.no_grad():
        model(torch.tensor([PROMPT]), cache=ran)
    with kvassay.load("native").prepare(kvassay.preset("fp16", **SHAPE)) as filled:
        for number in file.layers:
            layer = file.layer(number)
            filled.append(number, layer.k, layer.v)
        q = file.layer(0).q[-1]
        assert np.array_equal(ran.kvassay.scores(0, q), filled.scores(0, q))


def test_the_digest_follows_the_weights(model: Any, tmp_path: Path) -> None:
    def digest(path: str) -> str:
        return capture_model(model, PROMPT[:20], tmp_path / path, [1]).provenance.model_digest

    first = digest("a")
    assert digest("b") == first
    with torch.no_grad():
        next(model.parameters())[0, 0] += 1
    assert digest("c") != first


def test_the_gate_judges_what_was_captured(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    capture_model(model, PROMPT + PROMPT, "m.safetensors")
    asked = ("--tensors", "m.safetensors", "--suite", "captured", "--preset", "turbo")
    assert run(["gate", *asked, "--backend", "native", "--jobs", "1", "--quiet"]) == 0
    assert open_captured("m.safetensors").provenance.made_by["torch"] == torch.__version__


def test_wrong_wishes_are_refused(model: Any, tmp_path: Path) -> None:
    for tokens, layers in (([], None), (PROMPT, [2]), (PROMPT, [-1]), (PROMPT, [])):
        with pytest.raises(InputError, match="nothing to run, or an unknown layer"):
            capture_model(model, tokens, tmp_path / "x", layers)
    assert not list(tmp_path.iterdir())
