"""The forward pass of the Llama architecture in plain numpy, float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvassay.errors import InputError, ModelError
from kvassay.models.attention import Attention, Floats
from kvassay.models.config import ModelConfig
from kvassay.models.tokenizer import Tokenizer, Tokens


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one layer, float32; every matrix is (outputs, inputs)."""

    attention_norm: Floats
    query: Floats
    key: Floats
    value: Floats
    attention_output: Floats
    ffn_norm: Floats
    gate: Floats
    up: Floats
    down: Floats


@dataclass(frozen=True)
class Weights:
    """All weights of a model, float32; embedding and output are (vocab, hidden)."""

    embedding: Floats
    layers: tuple[LayerWeights, ...]
    norm: Floats
    output: Floats


class Model:
    """A Llama-architecture model whose attention is supplied by the caller.

    The model itself keeps no state: what earlier tokens left behind lives in the attention.
    """

    def __init__(
        self, config: ModelConfig, weights: Weights, tokenizer: Tokenizer | None = None
    ) -> None:
        self.config = config
        self.weights = weights
        self._tokenizer = tokenizer

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model; ModelError if the model works on bare token ids."""
        if self._tokenizer is None:
            raise ModelError(f"model {self.config.name!r} has no tokenizer; pass token ids")
        return self._tokenizer

    def hidden(
        self, tokens: Sequence[int] | Tokens, attention: Attention, start: int = 0
    ) -> Floats:
        """Final normalised hidden states, float32 (tokens, hidden), ready for ``logits``.

        tokens: ids of the new tokens. start: position of the first of them; the attention
        holds the ones before. Raises InputError for ids outside the vocabulary and positions
        outside the context.
        """
        ids = self._checked(tokens, start)
        cfg = self.config
        cos, sin = rope_table(np.arange(start, start + len(ids)), cfg.head_dim, cfg.rope_base)
        x = self.weights.embedding[ids]
        for number, layer in enumerate(self.weights.layers):
            x = x + self._attend(number, layer, x, (cos, sin), attention)
            x = x + _feed_forward(layer, rms_norm(x, layer.ffn_norm, cfg.eps))
        return rms_norm(x, self.weights.norm, cfg.eps)

    def logits(self, hidden_rows: Floats) -> Floats:
        """Next-token logits, float32 (rows, vocab), of rows of ``hidden``.

        A row is 4 x vocab bytes, so long sequences are best worked off a few hundred rows at
        a time.
        """
        return hidden_rows @ self.weights.output.T

    def forward(
        self,
        tokens: Sequence[int] | Tokens,
        attention: Attention,
        start: int = 0,
        last_only: bool = False,
    ) -> Floats:
        """Next-token logits, float32 (tokens, vocab), or (1, vocab) with ``last_only``."""
        rows = self.hidden(tokens, attention, start)
        return self.logits(rows[-1:] if last_only else rows)

    def greedy(
        self, prompt_tokens: Sequence[int] | Tokens, n: int, attention: Attention, start: int = 0
    ) -> Tokens:
        """The ``n`` most likely tokens after the prompt, one by one, int64 (n,).

        Ties go to the lower id. No token ends the run early.
        """
        position = start + len(prompt_tokens)
        row = self.forward(prompt_tokens, attention, start, last_only=True)
        chosen: list[int] = []
        while len(chosen) < n:
            chosen.append(int(row[0].argmax()))
            if len(chosen) < n:
                row = self.forward(chosen[-1:], attention, position)
                position += 1
        return np.asarray(chosen, dtype=np.int64)

    def _attend(
        self,
        number: int,
        layer: LayerWeights,
        x: Floats,
        table: tuple[Floats, Floats],
        attention: Attention,
    ) -> Floats:
        cfg = self.config
        normed = rms_norm(x, layer.attention_norm, cfg.eps)
        q = (normed @ layer.query.T).reshape(len(x), cfg.query_heads, cfg.head_dim)
        k = (normed @ layer.key.T).reshape(len(x), cfg.kv_heads, cfg.head_dim)
        v = (normed @ layer.value.T).reshape(len(x), cfg.kv_heads, cfg.head_dim)
        q, k = rope(q, *table), rope(k, *table)
        out = attention(number, q, k, v)
        if out.shape != q.shape or out.dtype != np.float32:
            raise InputError(
                f"attention of layer {number} returned {out.dtype} {out.shape}, "
                f"expected float32 {q.shape}"
            )
        return out.reshape(len(x), -1) @ layer.attention_output.T

    def _checked(self, tokens: Sequence[int] | Tokens, start: int) -> Tokens:
        cfg = self.config
        ids = np.asarray(tokens)
        if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
            raise InputError(
                f"tokens are {ids.dtype} of shape {ids.shape}; pass a non-empty row of integers"
            )
        outside = np.flatnonzero((ids < 0) | (ids >= cfg.vocab))
        if outside.size:
            at = int(outside[0])
            raise InputError(
                f"token {int(ids[at])} at index {at} is outside the vocabulary of {cfg.vocab}"
            )
        if start < 0 or start + len(ids) > cfg.context:
            raise InputError(
                f"positions {start} to {start + len(ids) - 1} are outside the context of "
                f"{cfg.context} tokens; pass fewer tokens"
            )
        return ids.astype(np.int64)


def rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    """Root-mean-square normalisation over the last axis (Zhang and Sennrich 2019)."""
    square = np.mean(x * x, axis=-1, keepdims=True, dtype=np.float32)
    root: Floats = np.sqrt(square + np.float32(eps))
    return x / root * weight


def rope_table(
    positions: npt.NDArray[np.int64], head_dim: int, base: float
) -> tuple[Floats, Floats]:
    """Cosines and sines of the RoPE angles (Su et al. 2021), float32 (positions, head_dim / 2).

    Angle i of position p is p * base ** (-2 i / head_dim), computed in float64.
    """
    frequency = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    angle = positions.astype(np.float64)[:, None] * frequency
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def rope(x: Floats, cos: Floats, sin: Floats) -> Floats:
    """Rotate channel pairs (2i, 2i+1), the order of Llama weights in GGUF.

    x: float32 (tokens, heads, head_dim); cos, sin: from ``rope_table``, one row a token.
    """
    even, odd = x[..., 0::2], x[..., 1::2]
    c, s = cos[:, None, :], sin[:, None, :]
    out = np.empty_like(x)
    out[..., 0::2] = even * c - odd * s
    out[..., 1::2] = even * s + odd * c
    return out


def _feed_forward(layer: LayerWeights, x: Floats) -> Floats:
    """SwiGLU (Shazeer 2020): down(silu(gate(x)) * up(x))."""
    gate = x @ layer.gate.T
    with np.errstate(over="ignore"):  # exp(-gate) may reach infinity, where silu is 0
        decay: Floats = np.exp(-gate)
    decay += np.float32(1.0)
    return (gate / decay * (x @ layer.up.T)) @ layer.down.T
