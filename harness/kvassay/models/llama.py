"""The forward pass of the Llama architecture and its relatives in plain numpy, float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kvassay.errors import InputError, ModelError
from kvassay.models.attention import Attention, Floats, FullAttention
from kvassay.models.config import ModelConfig
from kvassay.models.functions import gelu_tanh, rms_norm, rope, rope_table, silu
from kvassay.models.tokenizer import Tokenizer, Tokens

#: Called with a layer's number and the residual stream behind it, float32 (tokens, hidden).
Watch = Callable[[int, Floats], None]


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one layer, float32; every matrix is (outputs, inputs).

    None: the architecture has none. The norms behind a block belong to sandwich norms.
    """

    attention_norm: Floats
    query: Floats
    key: Floats
    value: Floats
    attention_output: Floats
    ffn_norm: Floats
    gate: Floats
    up: Floats
    down: Floats
    query_bias: Floats | None = None
    key_bias: Floats | None = None
    value_bias: Floats | None = None
    query_norm: Floats | None = None
    key_norm: Floats | None = None
    attention_after: Floats | None = None
    ffn_after: Floats | None = None


@dataclass(frozen=True)
class Weights:
    """All weights of a model, float32; embedding and output are (vocab, hidden).

    rope_factors: what each RoPE frequency is divided by, (head_dim / 2,), None for one.
    """

    embedding: Floats
    layers: tuple[LayerWeights, ...]
    norm: Floats
    output: Floats
    rope_factors: Floats | None = None


class Model:
    """A model whose attention is supplied by the caller.

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

    def full_attention(self) -> FullAttention:
        """Attention in float32, in the spans and with the softmax scale of this model."""
        return FullAttention(self.config.softmax_scale, spans=self.config.spans)

    def hidden(
        self,
        tokens: Sequence[int] | Tokens,
        attention: Attention,
        start: int = 0,
        watch: Watch | None = None,
    ) -> Floats:
        """Final normalised hidden states, float32 (tokens, hidden), ready for ``logits``.

        tokens: ids of the new tokens. start: position of the first of them; the attention
        holds the ones before. watch: shown the residual stream behind every layer. Raises
        InputError for ids outside the vocabulary, positions outside the context, and an
        attention known to have other spans than the model.
        """
        ids = self._checked(tokens, start)
        cfg = self.config
        self._check_spans(attention)
        x = self.weights.embedding[ids]
        if cfg.family.scaled_embedding:
            x = x * np.float32(np.sqrt(cfg.hidden))
        tables = self._rope_tables(start, len(ids))
        for number, layer in enumerate(self.weights.layers):
            x = x + self._attend(number, layer, x, tables[cfg.rope_of(number)], attention)
            x = x + self._feed_forward(layer, x)
            if watch is not None:
                watch(number, x)
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

    def _rope_tables(
        self, start: int, tokens: int
    ) -> dict[tuple[float, float], tuple[Floats, Floats]]:
        """Cosines and sines for each base and divisor that a layer has."""
        cfg = self.config
        positions = np.arange(start, start + tokens)
        return {
            (base, divisor): rope_table(
                positions / divisor, cfg.head_dim, base, self.weights.rope_factors
            )
            for base, divisor in {cfg.rope_of(layer) for layer in range(cfg.layers)}
        }

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
        q = _heads(normed, layer.query, layer.query_bias, cfg.query_heads)
        k = _heads(normed, layer.key, layer.key_bias, cfg.kv_heads)
        v = _heads(normed, layer.value, layer.value_bias, cfg.kv_heads)
        if layer.query_norm is not None and layer.key_norm is not None:
            q, k = rms_norm(q, layer.query_norm, cfg.eps), rms_norm(k, layer.key_norm, cfg.eps)
        order = cfg.family.rope_order
        q, k = rope(q, *table, order), rope(k, *table, order)
        out = attention(number, q, k, v)
        if out.shape != q.shape or out.dtype != np.float32:
            raise InputError(
                f"attention of layer {number} returned {out.dtype} {out.shape}, "
                f"expected float32 {q.shape}"
            )
        return self._after(
            out.reshape(len(x), -1) @ layer.attention_output.T, layer.attention_after
        )

    def _feed_forward(self, layer: LayerWeights, x: Floats) -> Floats:
        """down(activation(gate(x)) * up(x)): SwiGLU or GeGLU (Shazeer 2020, arXiv 2002.05202)."""
        normed = rms_norm(x, layer.ffn_norm, self.config.eps)
        activation = silu if self.config.family.activation == "silu" else gelu_tanh
        gated = activation(normed @ layer.gate.T) * (normed @ layer.up.T)
        return self._after(gated @ layer.down.T, layer.ffn_after)

    def _after(self, x: Floats, norm: Floats | None) -> Floats:
        return x if norm is None else rms_norm(x, norm, self.config.eps)

    def _check_spans(self, attention: Attention) -> None:
        """Attention over everything would quietly make another model of one that slides."""
        found = getattr(attention, "spans", None)
        if self.config.span is not None and found is not None and found != self.config.spans:
            raise InputError(
                f"model {self.config.name!r} has layers that attend {self.config.span} tokens, the "
                "attention has other spans: use model.full_attention(), or a cache whose spec "
                "comes from model.config.shape"
            )

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


def _heads(x: Floats, weight: Floats, bias: Floats | None, heads: int) -> Floats:
    projected: Floats = x @ weight.T
    if bias is not None:
        projected = projected + bias
    return projected.reshape(len(x), heads, -1)
