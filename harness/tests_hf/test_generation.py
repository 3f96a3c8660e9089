"""Every way in which transformers generates: with fp16 the plain cache's text."""

from __future__ import annotations

import copy
import pickle
from typing import Any, Final

import pytest
import torch
import transformers
from tiny_models import PROMPT, tiny

from kvassay.errors import InputError, StateError, TruncateError, UnsupportedError
from kvassay.hf import KvassayCache

TEXTS: Final = [PROMPT[:150], PROMPT[40:75], PROMPT[20:21]]


def padded(texts: list[list[int]]) -> dict[str, Any]:
    """A batch with padding on the left."""
    longest = max(map(len, texts))
    rows = [[0] * (longest - len(text)) + text for text in texts]
    mask = [[0] * (longest - len(text)) + [1] * len(text) for text in texts]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}


def generated(model: Any, cache: Any, batch: dict[str, Any], **how: Any) -> list[list[int]]:
    options = {"max_new_tokens": 24, "do_sample": False, **how}
    out = model.generate(**batch, cache=cache, **options)
    new: list[list[int]] = out[:, batch["input_ids"].shape[1] :].tolist()
    return new


def both(model: Any, batch: dict[str, Any], **how: Any) -> tuple[Any, Any, KvassayCache]:
    """The text with the plain cache, with ours, and ours."""
    model.set_attn_implementation("sdpa")
    plain = generated(model, transformers.DynamicCache(config=model.config), batch, **how)
    cache = KvassayCache(model, preset="fp16", window=64)
    return plain, generated(model, cache, batch, **how), cache


def test_a_batch_with_padding(model: Any) -> None:
    plain, ours, cache = both(model, padded(TEXTS))
    assert ours == plain
    assert len({tuple(text) for text in ours}) == 3
    held = [len(text) + 23 for text in TEXTS]
    assert [one.length for one in cache.sequences] == held  # padding is not stored
    assert cache.get_seq_length() == max(held)


def test_beam_search(model: Any) -> None:
    plain, ours, cache = both(model, padded(TEXTS[:2]), num_beams=3)
    assert ours == plain
    assert len(cache.sequences) == 6


def test_sampling_gives_several_texts(model: Any) -> None:
    torch.manual_seed(3)
    _, ours, cache = both(
        model, padded(TEXTS[:1]), do_sample=True, num_return_sequences=4, temperature=3.0
    )
    assert len({tuple(text) for text in ours}) > 1
    assert len(cache.sequences) == 4


@pytest.mark.parametrize("preset", ["fp16", "turbo", "kivi"])
def test_prompt_lookup_decoding_runs_to_the_end(model: Any, preset: str) -> None:
    """With codes a draft seals pages earlier than single steps do: the text may part at a tie."""
    batch, how = padded([PROMPT[:60] * 3]), {"max_new_tokens": 60}
    single, drafted = KvassayCache(model, preset=preset), KvassayCache(model, preset=preset)
    passes: list[int] = []
    handle = model.register_forward_pre_hook(lambda *_: passes.append(1))
    step_by_step = generated(model, single, batch, **how)
    steps = len(passes)
    text = generated(model, drafted, batch, prompt_lookup_num_tokens=6, **how)
    handle.remove()
    assert len(text[0]) == len(step_by_step[0]) == 60
    assert len(passes) - steps <= steps
    assert drafted.kvassay.length == drafted.get_seq_length()
    if preset == "fp16":
        assert text == step_by_step


def test_assisted_decoding_runs_to_the_end(model: Any) -> None:
    batch, how = padded([PROMPT]), {"max_new_tokens": 60}
    alone = generated(model, KvassayCache(model, preset="turbo"), batch, **how)
    cache = KvassayCache(model, preset="turbo")
    helper = tiny(model.config.model_type)
    with torch.no_grad():
        for weight in helper.parameters():
            weight.add_(0.02 * torch.randn_like(weight))
    drafted = generated(model, cache, batch, assistant_model=helper, **how)
    assert len(drafted[0]) == len(alone[0]) == 60
    assert cache.kvassay.counters.pages_encoded > 0


@pytest.mark.parametrize("kind", ["mistral", "qwen2", "gemma3_text"])
def test_sliding_layers_get_a_span(kind: str) -> None:
    fields = {
        "mistral": {"sliding_window": 48},
        "qwen2": {"use_sliding_window": True, "sliding_window": 48, "max_window_layers": 1},
        "gemma3_text": {"sliding_window": 48, "sliding_window_pattern": 2},
    }[kind]
    if kind == "gemma3_text":
        fields["query_pre_attn_scalar"] = 64
    model = tiny(kind, **fields)
    plain, ours, cache = both(model, padded(TEXTS[:1]))
    assert ours == plain
    spans = [one.span for one in cache.kvassay.spec.layer_specs]
    assert 48 in spans
    assert generated(model, KvassayCache(model, preset="turbo"), padded(TEXTS)) != []


def test_a_talk_goes_on_in_the_same_cache(model: Any) -> None:
    model.set_attn_implementation("sdpa")
    caches = [transformers.DynamicCache(), KvassayCache(model, preset="fp16")]
    texts = []
    for cache, attention in zip(caches, ("sdpa", "kvassay"), strict=True):
        model.set_attn_implementation(attention)
        first = generated(model, cache, padded([PROMPT[:50]]))
        talk = PROMPT[:50] + first[0] + PROMPT[60:90]
        texts.append((first, generated(model, cache, padded([talk]))))
    assert texts[0] == texts[1]


def test_crop_as_transformers_means_it(model: Any) -> None:
    cache = KvassayCache(model, preset="turbo", window=32, sinks=0)
    with torch.no_grad():
        model(torch.tensor([PROMPT]), cache=cache)
        model(torch.tensor([PROMPT[:20]]), cache=cache)
    cache.crop(0)
    assert cache.get_seq_length() == 220
    cache.crop(-7)  # tokens of the last pass
    assert cache.get_seq_length() == cache.kvassay.length == 213
    with pytest.raises(InputError, match="negative"):
        cache.crop(100)
    with pytest.raises(TruncateError, match="nearest allowed lengths"):
        cache.crop(-150)
    assert cache.get_seq_length() == cache.kvassay.length == 213


def test_a_copy_is_a_fork_and_a_pickle_is_refused(model: Any) -> None:
    cache = KvassayCache(model, preset="turbo")
    with torch.no_grad():
        model(torch.tensor([PROMPT]), cache=cache)
        for made in (copy.copy(cache), copy.deepcopy(cache)):
            step = torch.tensor([[9]])
            expected = model(step, cache=copy.deepcopy(made)).logits
            assert torch.equal(model(step, cache=made).logits, expected)
            assert made.get_seq_length() == len(PROMPT) + 1
            assert cache.get_seq_length() == len(PROMPT)
    with pytest.raises(StateError, match="dump_bytes"):
        pickle.dumps(cache)


def test_a_refused_pass_leaves_lengths_as_they_were(model: Any) -> None:
    cache = KvassayCache(model, preset="turbo", window=32)
    with torch.no_grad():
        model(torch.tensor([PROMPT]), cache=cache)
        before = cache.kvassay.dump_bytes()
        attention = model.model.layers[1].self_attn
        scaling, attention.scaling = attention.scaling, 2.0  # refused in the second layer
        with pytest.raises(UnsupportedError, match="layer 1 scales by"):
            model(torch.tensor([PROMPT[:70]]), cache=cache)
        attention.scaling = scaling
        assert cache.get_seq_length() == len(PROMPT)
        assert cache.kvassay.dump_bytes() == before
        model(torch.tensor([PROMPT[:70]]), cache=cache)
    assert cache.get_seq_length() == len(PROMPT) + 70


def test_sequences_in_a_cache_that_holds_others_are_refused(model: Any) -> None:
    cache = KvassayCache(model)
    with torch.no_grad():
        model(torch.tensor([PROMPT]), cache=cache)
        with pytest.raises(StateError, match="2 sequences for a cache of 1"):
            model(torch.tensor([PROMPT, PROMPT]), cache=cache)
        assert cache.get_seq_length() == len(PROMPT)
        cache.reset()
        model(torch.tensor([PROMPT, PROMPT]), cache=cache)
    assert len(cache.sequences) == 2
