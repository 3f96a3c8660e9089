"""Likelihood of given texts under a model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvassay.errors import InputError
from kvassay.models.attention import Attention, Floats
from kvassay.models.llama import Model
from kvassay.models.tokenizer import Tokens

Doubles = npt.NDArray[np.float64]


def log_softmax(logits: npt.NDArray[np.floating]) -> Doubles:
    """Logarithm of the softmax over the last axis, in float64, safe from overflow."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def nll(logits: npt.NDArray[np.floating], targets: Sequence[int] | Tokens) -> Doubles:
    """Negative log-likelihood in nats of each target under its row of logits.

    logits: (rows, vocab); targets: (rows,) ids. Returns float64 (rows,).
    """
    ids = np.asarray(targets)
    if logits.ndim != 2 or ids.shape != logits.shape[:1]:
        raise InputError(
            f"logits of shape {logits.shape} need one target a row, targets are {ids.shape}"
        )
    if ids.size and (ids.min() < 0 or ids.max() >= logits.shape[1]):
        raise InputError(f"targets must lie in 0..{logits.shape[1] - 1}")
    result: Doubles = -log_softmax(logits)[np.arange(len(ids)), ids]
    return result


def hidden_nll(
    model: Model, hidden: Floats, tokens: Sequence[int] | Tokens, rows: int = 256
) -> Doubles:
    """NLL of tokens[1:] from the hidden states of tokens, float64 (tokens - 1,).

    hidden: float32 (tokens, hidden) of a pass over all tokens. Logits exist for ``rows`` rows
    at a time only.
    """
    targets = np.asarray(tokens)[1:]
    parts = [
        nll(
            model.logits(hidden[begin : min(begin + rows, len(targets))]),
            targets[begin : begin + rows],
        )
        for begin in range(0, len(targets), rows)
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.float64)


def teacher_forced_nll(
    model: Model, tokens: Sequence[int] | Tokens, attention: Attention
) -> Doubles:
    """NLL of tokens[1:], each given the true tokens before it, float64 (tokens - 1,)."""
    return hidden_nll(model, model.hidden(tokens, attention), tokens)


def perplexity(model: Model, tokens: Sequence[int] | Tokens, attention: Attention) -> float:
    """exp of the mean NLL of tokens[1:]."""
    return math.exp(float(teacher_forced_nll(model, tokens, attention).mean()))
