"""What a pass over a conversation says about its items, beside full precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvassay.models import Model, Tokenizer, Tokens, dialogue_tokens, log_softmax
from kvassay.protocol import FloatArray

from .. import metrics
from ..metrics import Doubles
from .item import Conversation

#: What is kept of each item, in this order: plain numbers, one list each in a record's detail.
COLUMNS: Final = (
    *("tokens", "nll", "full_nll", "kl", "top1"),
    *("right", "full_right", "choice", "full_choice", "full_margin", "chance"),
)


@dataclass(frozen=True)
class Question:
    """An item as tokens.

    answer: positions in the conversation whose tokens are scored, the reference and its end mark.
    choices: first tokens of the reference and of those rivals that begin otherwise.
    """

    answer: range
    choices: tuple[int, ...]


@dataclass(frozen=True)
class Script:
    """A conversation as tokens, int64 (tokens,), and its items."""

    tokens: Tokens
    questions: tuple[Question, ...]


def script(model: Model, conversation: Conversation) -> Script:
    """Tokens of a conversation, and where its items are."""
    tokens, answer = dialogue_tokens(model, conversation.dialogue)
    edges = np.flatnonzero(np.diff(answer.astype(np.int8), prepend=0, append=0))
    runs = edges.reshape(-1, 2)[-len(conversation.items) :]
    return Script(
        tokens,
        tuple(
            Question(
                range(int(begin) + _length(model.tokenizer, item.lead), int(end)),
                _first_tokens(model.tokenizer, (item.reference, *item.rivals)),
            )
            for (begin, end), item in zip(runs, conversation.items, strict=True)
        ),
    )


def score(model: Model, talk: Script, full: FloatArray, found: FloatArray) -> dict[str, list[Any]]:
    """COLUMNS by name, one entry an item, from hidden states (tokens, hidden) of both passes.

    tokens: scored ones. nll, full_nll: their negative log-likelihood in nats under the cache and
    under full precision. kl: mean KL(full || cache) over them, nats. top1: share of them where the
    likeliest token is the same. choice, full_choice: index of the likeliest first token of an
    answer, 0 for the reference; right, full_right: whether it is 0. full_margin: nats between the
    first choice of full precision and its second. chance: 1 over the number of choices.
    """
    rows = [_score(model, talk.tokens, question, full, found) for question in talk.questions]
    return {name: [row[name] for row in rows] for name in COLUMNS}


def _score(
    model: Model, tokens: Tokens, question: Question, full: FloatArray, found: FloatArray
) -> dict[str, Any]:
    before = slice(question.answer.start - 1, question.answer.stop - 1)
    log_p = log_softmax(model.logits(full[before]))
    log_q = log_softmax(model.logits(found[before]))
    ids = tokens[question.answer.start : question.answer.stop]
    choices = list(question.choices)
    ours, theirs = log_q[0, choices], log_p[0, choices]
    ranked = np.sort(theirs)
    return {
        "tokens": len(ids),
        "nll": _nll(log_q, ids),
        "full_nll": _nll(log_p, ids),
        "kl": metrics.mean(metrics.kl_divergence(log_p, log_q)),
        "top1": metrics.mean(metrics.same_top1(log_p, log_q)),
        "right": int(ours.argmax() == 0),
        "full_right": int(theirs.argmax() == 0),
        "choice": int(ours.argmax()),
        "full_choice": int(theirs.argmax()),
        "full_margin": float(ranked[-1] - ranked[-2]),
        "chance": 1.0 / len(choices),
    }


def _nll(log_q: Doubles, ids: NDArray[np.int64]) -> float:
    return float(-log_q[np.arange(len(ids)), ids].sum())


def _length(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.encode(text, bos=False)) if text else 0


def _first_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[int, ...]:
    """The first token of each text, in order and without repeats."""
    return tuple(dict.fromkeys(int(tokenizer.encode(text, bos=False)[0]) for text in texts))
