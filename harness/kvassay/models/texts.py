"""Fixed texts: a slice of Python's own documentation, and chats written for this project."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvassay.errors import InputError, ModelError
from kvassay.models.dialogues import DIALOGUES, SYSTEM, Dialogue
from kvassay.models.llama import Model
from kvassay.models.tokenizer import Tokens

# One long topic, because offsets into the joined topics move with every Python release.
_TOPIC, _CHARACTERS = "typesseq", 6000
#: No token of ordinary prose is longer; used to cut a text before it is tokenized.
LONGEST_TOKEN = 64


class Text(NamedTuple):
    """A text and the hex sha256 of its UTF-8 bytes."""

    text: str
    sha256: str


class DialogueTokens(NamedTuple):
    """A rendered dialogue.

    tokens: int64 (tokens,). answer: bool (tokens,), true for the tokens the assistant would
    have to produce: the content of its turns and the end mark after each.
    """

    tokens: Tokens
    answer: npt.NDArray[np.bool_]


def perplexity_text() -> Text:
    """The first 6000 characters of CPython's help on sequence types, about 1400 tokens.

    The documentation differs a little between Python versions: compare figures only where the
    hash is equal. Raises ModelError if this Python ships without its help topics.
    """
    text = _topics()[_TOPIC][:_CHARACTERS]
    return Text(text, hashlib.sha256(text.encode()).hexdigest())


def topics_tokens(model: Model, n: int, offset: int = 0) -> Tokens:
    """``n`` tokens of CPython's help topics from character ``offset`` on, int64 (n,).

    The topics are joined in sorted order. Raises InputError if fewer tokens remain.
    """
    if n < 1 or offset < 0:
        raise InputError(f"n is {n} and offset {offset}; n must be positive, offset not negative")
    tokens = model.tokenizer.encode(topics_text(offset)[: n * LONGEST_TOKEN])
    if len(tokens) < n:
        raise InputError(
            f"the help topics hold {len(tokens)} tokens from character {offset} on, {n} are wanted"
        )
    return tokens[:n]


def topics_text(offset: int = 0) -> str:
    """CPython's help topics, joined in sorted order, from character ``offset`` on."""
    topics = _topics()
    return "".join(topics[name] for name in sorted(topics))[offset:]


def render(dialogue: Dialogue, system: str = SYSTEM) -> str:
    """The dialogue as the ChatML text the model was tuned on, a system turn in front."""
    return "".join("".join(parts) for _, parts in _parts(dialogue, system))


def dialogue_tokens(model: Model, dialogue: Dialogue, system: str = SYSTEM) -> DialogueTokens:
    """Tokens of the rendered dialogue, and which of them the assistant says."""
    ids: list[Tokens] = []
    answer: list[npt.NDArray[np.bool_]] = []
    for role, (header, body, tail) in _parts(dialogue, system):
        for text, is_body in ((header, False), (body, True), (tail, False)):
            piece = model.tokenizer.encode(text, bos=not ids)
            ids.append(piece)
            answer.append(np.full(len(piece), is_body and role == "assistant"))
    return DialogueTokens(np.concatenate(ids), np.concatenate(answer))


def dialogues() -> tuple[Dialogue, ...]:
    """The eight chats written for this project."""
    return DIALOGUES


def _topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ModuleNotFoundError as exc:
        raise ModelError(
            "this Python ships without pydoc_data, its help topics: use a full installation"
        ) from exc
    return topics


def _parts(dialogue: Dialogue, system: str) -> list[tuple[str, tuple[str, str, str]]]:
    """Role of each turn with its header, its content up to the end mark, and the line end."""
    turns = [("system", system), *((turn.role, turn.content) for turn in dialogue.turns)]
    return [
        (role, (f"<|im_start|>{role}\n", f"{content}<|im_end|>", "\n")) for role, content in turns
    ]
