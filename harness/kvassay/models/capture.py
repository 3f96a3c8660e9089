"""Queries, keys and values of a full-precision pass, the input of most measurements."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvassay.models.attention import CaptureAttention, Floats
from kvassay.models.config import ModelConfig
from kvassay.models.llama import Model
from kvassay.models.tokenizer import Tokens


@dataclass(frozen=True)
class Capture:
    """What a full-precision pass over a sequence gave.

    config: of the model. tokens: int64 (tokens,). q: one float32 (tokens, query_heads, head_dim)
    a layer; k, v: (tokens, kv_heads, head_dim); q and k after RoPE, without the softmax scale.
    hidden: float32 (tokens, hidden), for ``Model.logits``. digest: ``token_digest(tokens)``.
    residuals: the stream behind each layer, float32 (tokens, hidden), where they were asked for.
    """

    config: ModelConfig
    tokens: Tokens
    q: tuple[Floats, ...]
    k: tuple[Floats, ...]
    v: tuple[Floats, ...]
    hidden: Floats
    digest: str
    residuals: tuple[Floats, ...] = ()


def capture(model: Model, tokens: Sequence[int] | Tokens, residuals: bool = False) -> Capture:
    """Run ``model`` over ``tokens`` in full precision and keep q, k, v of every layer.

    residuals: keep the residual stream behind every layer as well.

    Takes 4 x (query_heads + 2 kv_heads) x head_dim bytes a token and layer: 112 KB a token for
    SmolLM2-135M. The arrays are read-only.
    """
    attention = CaptureAttention(model.full_attention())
    kept: list[Floats] = []
    watch = (lambda layer, x: kept.append(x)) if residuals else None
    hidden = model.hidden(tokens, attention, watch=watch)
    result = Capture(
        config=model.config,
        tokens=np.array(tokens, dtype=np.int64),
        q=tuple(attention.q),
        k=tuple(attention.k),
        v=tuple(attention.v),
        hidden=hidden,
        digest=token_digest(tokens),
        residuals=tuple(kept),
    )
    result.tokens.flags.writeable = False
    for array in (hidden, *result.q, *result.k, *result.v, *result.residuals):
        array.flags.writeable = False
    return result


def token_digest(tokens: Sequence[int] | Tokens) -> str:
    """Hex sha256 of token ids written as little-endian uint32."""
    return hashlib.sha256(np.asarray(tokens).astype("<u4").tobytes()).hexdigest()
