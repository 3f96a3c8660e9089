"""Tiny models of transformers, randomly initialised."""

from __future__ import annotations

from typing import Any, Final

import torch
import transformers

PROMPT: Final = [(7 * i * i + 3 * i) % 250 + 1 for i in range(200)]


def tiny(kind: str, **fields: Any) -> Any:
    """Two layers, grouped queries, head dim 64, float32."""
    torch.manual_seed(1)
    given: dict[str, Any] = {
        "vocab_size": 256,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 1024,
        "initializer_range": 0.2,
        "eos_token_id": None,
        "pad_token_id": 0,
    }
    config = transformers.AutoConfig.for_model(kind, **{**given, **fields})
    return transformers.AutoModelForCausalLM.from_config(config).eval()
