"""What a cache must know of a model of transformers, and which models it cannot hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kvassay.errors import UnsupportedError
from kvassay.spec import Rope

#: Names under which configs keep what caps logits, and what says that keys and values differ.
_CAPS: Final = ("attn_logit_softcapping", "attention_logit_cap", "attn_logit_soft_cap")
_LATENT: Final = ("kv_lora_rank", "mla_kv_lora_rank")
_ALIBI: Final = ("alibi", "use_alibi")


def shape_of(config: Any) -> dict[str, Any]:
    """Fields of a spec: layers, KV heads, query heads, head dim, and spans of sliding layers.

    UnsupportedError names everything of the model that a cache cannot hold.
    """
    text = config.get_text_config(decoder=True)
    if reasons := [*_reasons(config, text)]:
        raise UnsupportedError(f"{text.model_type}: {'; '.join(reasons)}")
    heads = text.num_attention_heads
    spans = {n: span for n, span in enumerate(spans_of(config)) if span}
    fields = {
        "layers": text.num_hidden_layers,
        "query_heads": heads,
        "kv_heads": getattr(text, "num_key_value_heads", None) or heads,
        "head_dim": getattr(text, "head_dim", None) or text.hidden_size // heads,
    }
    if spans:  # a sink would be attended for ever
        fields["layer_overrides"] = {n: {"span": span, "sinks": 0} for n, span in spans.items()}
    return fields


def spans_of(config: Any) -> list[int]:
    """Tokens that each layer attends, 0 for all."""
    text = config.get_text_config(decoder=True)
    window = getattr(text, "sliding_window", None) or 0
    kinds = getattr(text, "layer_types", None)
    if kinds is None:
        return [window] * text.num_hidden_layers
    return [window if kind == "sliding_attention" else 0 for kind in kinds]


def _reasons(config: Any, text: Any) -> Iterator[str]:
    if getattr(config, "is_encoder_decoder", False):
        yield "an encoder and a decoder: a KvassayCache holds decoders"
    kinds = set(getattr(text, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if kinds:
        yield f"layers with {', '.join(sorted(kinds))}"
    for name in _CAPS:
        if getattr(text, name, None):
            yield f"logits capped ({name} {getattr(text, name)})"
    for name in _LATENT:
        if getattr(text, name, None):
            yield f"keys and values of different head dim ({name} {getattr(text, name)})"
    if any(getattr(text, name, False) for name in _ALIBI):
        yield "attention with ALiBi, a bias that is added to logits"
    if shared := getattr(text, "num_kv_shared_layers", 0):
        yield f"{shared} layers that share another layer's cache"
    if getattr(text, "global_head_dim", None) not in (None, getattr(text, "head_dim", None)):
        yield f"head dims that differ between layers ({text.head_dim}, {text.global_head_dim})"
    needed = ("num_hidden_layers", "num_attention_heads", "hidden_size")
    if missing := [n for n in needed if not isinstance(getattr(text, n, None), int)]:
        yield f"no one number for {', '.join(missing)} in its config"
    elif not isinstance(getattr(text, "num_key_value_heads", None) or 1, int):
        yield "numbers of KV heads that differ between layers"


def require_attention_functions(model: Any) -> None:
    """UnsupportedError for models that would compute attention without asking a cache.

    Such a model would run in full precision, whatever the preset, and look lossless.
    """
    if not getattr(model, "_supports_attention_backend", False):
        raise UnsupportedError(
            f"{type(model).__name__}: its attention does not go through transformers' attention "
            f"functions, so a cache would not be asked"
        )
    if any(name.rpartition(".")[2] in ("sinks", "sink") for name, _ in model.named_parameters()):
        raise UnsupportedError(f"{type(model).__name__}: learnt sinks in attention")


def scale_of(model: Any) -> float | None:
    """What the model's attention multiplies logits by, None where its layers do not agree."""
    found = {
        float(module.scaling)
        for module in model.modules()
        if hasattr(module, "layer_idx") and isinstance(getattr(module, "scaling", None), float)
    }
    return found.pop() if len(found) == 1 else None


def rope_of(config: Any) -> Rope | None:
    """How the model rotates queries and keys, None where its config does not say."""
    text = config.get_text_config(decoder=True)
    told = getattr(text, "rope_parameters", None)
    if not told or "rope_theta" not in told:
        return None
    dims = round(shape_of(config)["head_dim"] * told.get("partial_rotary_factor", 1.0))
    kind = told.get("rope_type", "default")
    scaling = "none" if kind == "default" else kind
    return Rope(base=float(told["rope_theta"]), dims=dims, order="half", scaling=scaling)
