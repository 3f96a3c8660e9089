"""What a cache cannot hold is refused by name, never measured as lossless."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_models import PROMPT, tiny

from kvassay.errors import StateError, UnsupportedError
from kvassay.hf import KvassayCache, capture_model
from kvassay.hf.masks import real_tokens


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("gemma2", {"attn_logit_softcapping": 50.0}, "logits capped"),
        ("llama4_text", {}, "chunked_attention"),
        ("deepseek_v3", {}, "different head dim"),
        ("t5", {}, "an encoder and a decoder"),
        ("gemma3n_text", {}, "share another layer's cache"),
    ],
)
def test_configs_that_say_so(kind: str, fields: dict[str, Any], words: str) -> None:
    config = transformers.AutoConfig.for_model(kind, **fields)
    with pytest.raises(UnsupportedError, match=words):
        KvassayCache(type("Model", (), {"config": config}))


@pytest.mark.parametrize("kind", ["bloom", "gpt_neo", "xglm"])
def test_a_model_that_never_asks_a_cache(kind: str) -> None:
    config = transformers.AutoConfig.for_model(kind)
    config = type(config)(vocab_size=256, **_small(config))
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(UnsupportedError, match=r"would not be asked|ALiBi|no one number"):
        KvassayCache(model)


def _small(config: Any) -> dict[str, Any]:
    layers = {"attention_types": [[["global"], 2]]} if hasattr(config, "attention_types") else {}
    return {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, **layers}


def test_learnt_sinks() -> None:
    model = tiny("llama")
    model.model.layers[0].self_attn.sinks = torch.nn.Parameter(torch.zeros(4))
    with pytest.raises(UnsupportedError, match="learnt sinks"):
        KvassayCache(model)


def test_values_changed_between_cache_and_attention() -> None:
    model = tiny("llama")
    cache = KvassayCache(model, preset="fp16")
    update = cache.layers[0].update
    cache.layers[0].update = lambda k, v, *a, **o: (update(k, v)[0], v * 1)
    with pytest.raises(UnsupportedError, match="changed between cache and attention"):
        model(torch.tensor([PROMPT]), cache=cache)
    assert cache.get_seq_length() == cache.kvassay.length == 0


def test_a_pass_that_never_came_here_is_told_at_its_end(model: Any) -> None:
    cache = KvassayCache(model, preset="fp16")
    model.set_attn_implementation("sdpa")
    with pytest.raises(StateError, match="full precision"):
        model(torch.tensor([PROMPT]), cache=cache)
    assert cache.get_seq_length() == 0


def causal(tokens: int) -> Any:
    return torch.ones(1, 1, tokens, tokens).tril().bool()


def test_masks_are_held_against_what_a_cache_does() -> None:
    none = torch.zeros((1, 0), dtype=torch.bool)
    assert real_tokens(causal(5), none, 5, 0, 0).tolist() == [[True] * 5]
    left = causal(5)
    left[..., :2] = False
    assert real_tokens(left, none, 5, 0, 0).tolist() == [[False, False, True, True, True]]
    span = causal(5) & ~causal(5).roll(3, dims=2).tril(-3)
    assert real_tokens(span, none, 5, 3, 0).tolist() == [[True] * 5]
    chunks = causal(6)
    chunks[..., 3:, :3] = False
    block = causal(5)
    block[..., 0, 1] = True
    for wrong, words in ((chunks, "plain causal"), (block, "plain causal"), (span, "plain causal")):
        with pytest.raises(UnsupportedError, match=words):
            real_tokens(wrong, none, wrong.shape[-1], 0, 0)
    hole = causal(5)
    hole[..., 2] = False
    with pytest.raises(UnsupportedError, match="pad on the left"):
        real_tokens(hole, none, 5, 0, 0)
    bias = torch.zeros(1, 1, 5, 5).masked_fill(~causal(5), torch.finfo(torch.float32).min)
    assert real_tokens(bias, none, 5, 0, 0).all()
    bias[..., 3, 1] = -0.5
    with pytest.raises(UnsupportedError, match="bias that is added"):
        real_tokens(bias, none, 5, 0, 0)


def test_a_capture_of_sliding_layers(tmp_path: Path) -> None:
    model = tiny("mistral", sliding_window=48)
    with pytest.raises(UnsupportedError, match="full causal attention"):
        capture_model(model, PROMPT, tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []
