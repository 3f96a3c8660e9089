"""Ordinary chat: how much less likely the assistant's own words become with a quantized cache.

A chat of a hundred tokens lies inside the fp16 window and would measure nothing, so every
dialogue is scored with others before it in the same conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from kvassay.models import (
    CacheAttention,
    Capture,
    Dialogue,
    capture,
    dialogue_tokens,
    dialogues,
    hidden_nll,
)
from kvassay.protocol import Backend
from kvassay.records import Record
from kvassay.suite import Target

from . import metrics
from .measured import REAL, Origin, load
from .metrics import Doubles
from .real_model import cache_spec, real_model
from .sharing import share

SMALL_WINDOW: Final = 32


@dataclass(frozen=True)
class Conversation:
    """Dialogues joined to one conversation, of which the later half is scored.

    captured: the full-precision pass. items: for each scored dialogue its number, and which of
    tokens[1:] are its answers, bool (tokens - 1,).
    """

    captured: Capture
    items: tuple[tuple[int, np.ndarray[Any, np.dtype[np.bool_]]], ...]


def measure(
    backend: str,
    variant: str,
    preset: str,
    model: str,
    followers: Sequence[tuple[str, str]] = (),
) -> list[Record]:
    """The 95 % upper bound of the relative rise of the NLL of the assistant's tokens.

    The preset as it is gives the value; a window of 32 is in the detail.
    """
    target = Target(backend, variant)
    loaded = load(target)
    origin = Origin(target, preset, REAL)
    full = _totals(conversations(model), [c.captured.hidden for c in conversations(model)], model)
    own = _with_cache(loaded, preset, model)
    small = _with_cache(loaded, preset, model, window=SMALL_WINDOW)
    record = origin.record(
        "chat_nll_rise",
        metrics.rise_upper_bound(full, own),
        "relative, 95 % upper bound",
        len(full),
        "dialogues with history",
        rise=metrics.relative_rise(full, own),
        by_dialogue=(own / full - 1.0).tolist(),
        window_32={
            "bound": metrics.rise_upper_bound(full, small),
            "rise": metrics.relative_rise(full, small),
            "by_dialogue": (small / full - 1.0).tolist(),
        },
        conversations=[c.captured.digest for c in conversations(model)],
    )
    if not loaded.exact:
        return [record]
    others = [Target(*follower) for follower in followers]
    return share([record], target, others, preset, conversations(model)[0].captured, "chat")


@lru_cache(maxsize=1)
def conversations(model: str) -> tuple[Conversation, ...]:
    """Two conversations of all dialogues, halves swapped: each dialogue is scored once, with half
    of the others before it."""
    numbers = list(range(len(dialogues())))
    half = len(numbers) // 2
    first, second = numbers[:half], numbers[half:]
    return (_conversation(model, first, second), _conversation(model, second, first))


def _conversation(model: str, before: list[int], scored: list[int]) -> Conversation:
    chats = dialogues()
    order = [*before, *scored]
    joined = Dialogue("chats", tuple(turn for number in order for turn in chats[number].turns))
    tokens, answer = dialogue_tokens(real_model(model), joined)
    # Answers are separate runs of tokens, one a turn of the assistant, in order.
    begins = np.flatnonzero(np.diff(answer.astype(np.int8), prepend=0) == 1)
    run = np.searchsorted(begins, np.arange(len(tokens)), side="right") - 1
    owner = np.array(
        [number for number in order for turn in chats[number].turns if turn.role == "assistant"]
    )
    items = tuple((number, (answer & (owner[run] == number))[1:]) for number in scored)
    return Conversation(capture(real_model(model), tokens), items)


def _with_cache(backend: Backend, preset: str, model: str, **fields: int) -> Doubles:
    hidden = []
    for conversation in conversations(model):
        with backend.prepare(cache_spec(preset, conversation.captured, **fields)) as cache:
            tokens = conversation.captured.tokens
            hidden.append(real_model(model).hidden(tokens, CacheAttention(cache)))
    return _totals(conversations(model), hidden, model)


def _totals(
    talks: Sequence[Conversation],
    hidden: Sequence[np.ndarray[Any, np.dtype[np.float32]]],
    model: str,
) -> Doubles:
    """NLL in nats of the assistant's tokens of each dialogue, (dialogues,)."""
    totals = np.empty(sum(len(talk.items) for talk in talks))
    for talk, rows in zip(talks, hidden, strict=True):
        nll = hidden_nll(real_model(model), rows, talk.captured.tokens)
        for number, mine in talk.items:
            totals[number] = nll[mine].sum()
    return totals
