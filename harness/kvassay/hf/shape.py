"""What a cache must know of a model of transformers."""

from __future__ import annotations

from typing import Any

from kvassay.errors import UnsupportedError
from kvassay.spec import Rope


def shape_of(config: Any) -> dict[str, int]:
    """Layers, KV heads, query heads and head dim; UnsupportedError for layers without full
    attention."""
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        raise UnsupportedError(f"{text.model_type}: layers with {', '.join(sorted(kinds))}")
    heads = text.num_attention_heads
    return {
        "layers": text.num_hidden_layers,
        "query_heads": heads,
        "kv_heads": getattr(text, "num_key_value_heads", None) or heads,
        "head_dim": getattr(text, "head_dim", None) or text.hidden_size // heads,
    }


def rope_of(config: Any) -> Rope | None:
    """How the model rotates queries and keys, None where its config does not say."""
    text = config.get_text_config()
    told = getattr(text, "rope_parameters", None)
    if not told or "rope_theta" not in told:
        return None
    dims = round(shape_of(config)["head_dim"] * told.get("partial_rotary_factor", 1.0))
    kind = told.get("rope_type", "default")
    scaling = "none" if kind == "default" else kind
    return Rope(base=float(told["rope_theta"]), dims=dims, order="half", scaling=scaling)
