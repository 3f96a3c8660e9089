"""What a pass over a conversation says about its items, beside full precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvassay.errors import InputError
from kvassay.models import Model, Tokenizer, Tokens, dialogue_tokens, log_softmax
from kvassay.protocol import FloatArray

from .. import metrics
from ..metrics import Doubles
from .item import Conversation, Item

#: What is kept of each item, in this order: plain numbers, one list each in a record's detail.
COLUMNS: Final = (
    *("tokens", "nll", "full_nll", "kl", "top1"),
    *("right", "full_right", "choice", "full_choice", "full_margin", "chance"),
)


@dataclass(frozen=True)
class Question:
    """An item as tokens.

    answer: positions in the conversation whose tokens are scored, the reference and its end mark.
    fork: position of the first token in which the reference and its rivals differ. choices: what
    they have there, the reference first, each token once.
    """

    answer: range
    fork: int
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
            _question(model.tokenizer, item, int(begin), int(end))
            for (begin, end), item in zip(runs, conversation.items, strict=True)
        ),
    )


def _question(tokenizer: Tokenizer, item: Item, begin: int, end: int) -> Question:
    """The item whose answer, lead and end mark included, is at these positions."""
    start = begin + len(_encode(tokenizer, item.lead))
    texts = [_encode(tokenizer, text) for text in (item.reference, *item.rivals)]
    for shared, tokens in enumerate(zip(*texts, strict=False)):
        choices = tuple(dict.fromkeys(tokens))
        if len(choices) > 1:
            return Question(range(start, end), start + shared, choices)
    raise InputError(f"item {item.question!r}: its answers are alike to this model's tokenizer")


def score(model: Model, talk: Script, full: FloatArray, found: FloatArray) -> dict[str, list[Any]]:
    """COLUMNS by name, one entry an item, from hidden states (tokens, hidden) of both passes.

    tokens: scored ones. nll, full_nll: their negative log-likelihood in nats under the cache and
    under full precision. kl: mean KL(full || cache) over them, nats. top1: share of them where the
    likeliest token is the same. choice, full_choice: index of the likeliest of the choices, 0 for
    the reference; right, full_right: whether it is 0. full_margin: nats between the first choice
    of full precision and its second. chance: 1 over the number of choices.
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
    choices, at = list(question.choices), question.fork - question.answer.start
    ours, theirs = log_q[at, choices], log_p[at, choices]
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


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return [int(token) for token in tokenizer.encode(text, bos=False)] if text else []
