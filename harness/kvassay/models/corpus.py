"""Eight texts of different kinds, half of them to choose by and half of them to report."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvassay.errors import InputError, ModelError
from kvassay.models.llama import Model
from kvassay.models.prose import ESSAY, STORY
from kvassay.models.texts import (
    LONGEST_TOKEN,
    dialogues,
    perplexity_text,
    render,
    topics_text,
)
from kvassay.models.tokenizer import Tokens
from kvassay.suggest import did_you_mean

#: Character of the help topics where the text `reference` begins.
_REFERENCE: Final = 20_000


@dataclass(frozen=True)
class Passage:
    """A text by name. held_out: for reports, never looked at while arms are chosen."""

    name: str
    kind: str
    held_out: bool
    text: Callable[[], str]

    def tokens(self, model: Model, n: int) -> Tokens:
        """Its first n tokens, int64 (n,); raises InputError if it is shorter."""
        tokens = model.tokenizer.encode(self.text()[: n * LONGEST_TOKEN])
        if len(tokens) < n:
            raise InputError(f"text {self.name!r} has {len(tokens)} tokens, {n} are wanted")
        return tokens[:n]


def _source(module: str) -> str:
    """Python code of a module of the standard library, from its second half on."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise ModelError(f"this Python ships without the source of {module}: use a full one")
    text = Path(spec.origin).read_text(encoding="utf-8")
    return text[text.index("\n", len(text) // 2) + 1 :]


def _records() -> str:
    """A table of comma-separated records: figures of a linear congruence (Knuth 1997, 3.2.1)."""
    lines, state = ["date,station,degrees,millimetres,wind,note"], 1
    for row in range(200):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        a, b, c, d = ((state >> shift) % 100 for shift in (20, 30, 40, 50))
        note = ("ok", "ok", "checked", "sensor wet")[(state >> 60) % 4]
        lines.append(
            f"2024-{row // 28 % 12 + 1:02}-{row % 28 + 1:02},{('north', 'quay', 'mill')[row % 3]},"
            f"{a / 5 - 4:.1f},{max(0, b - 60)},{c // 8}{'NESW'[d % 4]},{note}"
        )
    return "\n".join(lines)


def _chats() -> str:
    """The dialogues of this project one after another, and the first two again."""
    chats = dialogues()
    return "".join(render(dialogue) for dialogue in (*chats, *chats[:2]))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not text in UTF-8: {error}") from None


PASSAGES: Final = (
    Passage("manual", "tutorial with examples", False, lambda: perplexity_text().text),
    Passage("textwrap", "program", False, lambda: _source("textwrap")),
    Passage("chat", "dialogues", False, _chats),
    Passage("story", "narrative with speech", False, lambda: STORY),
    Passage("reference", "language reference", True, lambda: topics_text(_REFERENCE)),
    Passage("fractions", "program", True, lambda: _source("fractions")),
    Passage("records", "table of figures", True, _records),
    Passage("essay", "expository prose", True, lambda: ESSAY),
)


def passage(name: str) -> Passage:
    """The passage of a name, or a text of one's own by the path of its file in UTF-8; raises
    InputError for another."""
    known = {one.name: one for one in PASSAGES}
    if name not in known:
        if Path(name).is_file():
            return Passage(name, "file", False, lambda: _read(Path(name)))
        raise InputError(f"no text {name!r}{did_you_mean(name, known)}")
    return known[name]
