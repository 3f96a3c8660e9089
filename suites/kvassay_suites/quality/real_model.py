"""The real model, its fixed text, and what full precision makes of it; loaded once a process."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kvassay.models import Capture, Model, ModelConfig, capture, load, topics_tokens
from kvassay.presets import preset as make_preset
from kvassay.spec import Identity, Spec

from .fidelity import LayerTensors

#: Where the fixed text begins in CPython's help topics: that of `kvassay.models.perplexity_text`.
TEXT_OFFSET = 20_000


@lru_cache(maxsize=1)
def real_model(name: str) -> Model:
    """The model; ModelError with the install line where its file is missing."""
    return load(name)


@lru_cache(maxsize=1)
def fixed_text(name: str, tokens: int) -> Capture:
    """The full-precision pass over the first so many tokens of the fixed text."""
    model = real_model(name)
    return capture(model, topics_tokens(model, tokens, TEXT_OFFSET), residuals=True)


def tensors(captured: Capture, layer: int) -> LayerTensors:
    """The captured queries, keys and values of one layer."""
    return LayerTensors(captured.q[layer], captured.k[layer], captured.v[layer])


def spread_layers(layers: int, wanted: int) -> list[int]:
    """At most `wanted` layers, evenly spread from the first to the last."""
    if wanted >= layers:
        return list(range(layers))
    return [round(i * (layers - 1) / (wanted - 1)) for i in range(wanted)]


def cache_spec(preset: str, captured: Capture, **fields: Any) -> Spec:
    """The preset in the model's shape, with the identity of model and text."""
    return model_spec(preset, captured.config, captured.digest, **fields)


def model_spec(preset: str, config: ModelConfig, digest: str, **fields: Any) -> Spec:
    """The preset in the shape of a model, with its identity and the digest of the tokens."""
    shape: dict[str, Any] = {
        **config.shape,
        "rope": config.rope,
        "identity": Identity(
            model=config.model_hash,
            tokenizer=config.tokenizer_hash,
            template=config.template_hash,
            tokens=digest,
        ),
    }
    return make_preset(preset, **{**shape, **fields})
