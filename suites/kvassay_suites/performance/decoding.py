"""Tokens a second, end to end: the real model with each preset's cache in its loop."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

import kvassay
from kvassay.models import loading
from kvassay.models.attention import CacheAttention, CaptureAttention
from kvassay.models.llama import Model
from kvassay.models.texts import topics_tokens
from kvassay.protocol import Backend
from kvassay.records import Record

from ..common.specs import instruction_stage, record
from .work import checksum, processor_time

_PROMPT: Final = 256
_STAGE: Final = "real model scalar"


def measure(
    backend: str, variant: str, presets: Sequence[str], tokens: int, model: str
) -> list[Record]:
    """Tokens a second of greedy decoding after a prompt, whose keys and values the caches get."""
    loaded = kvassay.load(backend, variant)
    network = loading.load(model)
    prompt = topics_tokens(network, _PROMPT)
    captured = CaptureAttention(network.full_attention())
    first = int(network.forward(prompt, captured, last_only=True)[0].argmax())
    return [
        _record(backend, variant, preset, loaded, network, captured, first, tokens)
        for preset in presets
    ]


def _record(
    backend: str, variant: str, preset: str, loaded: Backend, network: Model,
    captured: CaptureAttention, first: int, tokens: int,
) -> Record:  # fmt: skip
    config = network.config
    spec = kvassay.preset(preset, **config.shape)
    times, chosen = [], [first]
    with loaded.prepare(spec) as cache:
        for layer in range(config.layers):
            cache.append(layer, captured.k[layer], captured.v[layer])
        attention = CacheAttention(cache)
        for number in range(tokens):
            began = processor_time()
            row = network.forward([chosen[-1]], attention, _PROMPT + number, last_only=True)
            times.append(processor_time() - began)
            chosen.append(int(row[0].argmax()))
    seconds = statistics.median(times) / 1e9
    detail = {
        "prompt": _PROMPT,
        "tokens": chosen[1:],
        "samples_us": [round(value / 1e3, 1) for value in times],
        "build_id": loaded.build_id,
        "output": checksum(row),
        "method": "median of single steps, model in numpy on one thread and the cache in its loop",
    }
    return record(
        "performance.tokens_per_second",
        instruction_stage(backend, variant) if backend != "reference" else _STAGE,
        *(backend, variant, 1 / seconds, "tokens a second", tokens),
        preset=preset,
        subject=f"{config.name} after {_PROMPT} tokens",
        detail=detail,
    )
