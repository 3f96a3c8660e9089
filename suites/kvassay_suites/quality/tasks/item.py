"""What a task family is made of: conversations in which some answers of the assistant are scored.

An item is one answer in a conversation. All items of a conversation are scored in one
teacher-forced pass: each answer follows the true answers before it, whatever the arm, so every arm
reads the same tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from kvassay.models import Dialogue, Turn

#: The number of items from which a family is judged: see the power calculation in docs/tasks.md.
LEAST_ITEMS: Final = 30


@dataclass(frozen=True)
class Item:
    """One question and its answer.

    The answer is `lead + reference`. Only the reference and the end mark are scored; the lead is
    what makes the reference the natural continuation for a model too small to find the form of the
    answer. rivals: wrong continuations of the lead; the item is right where the reference is
    likelier than every rival in the first token in which they differ. tag: what the item varies,
    such as a depth.
    """

    question: str
    reference: str
    lead: str = ""
    rivals: tuple[str, ...] = ()
    tag: str = ""

    @property
    def turns(self) -> tuple[Turn, Turn]:
        """The item as a turn of the user and one of the assistant."""
        return Turn("user", self.question), Turn("assistant", self.lead + self.reference)


@dataclass(frozen=True)
class Conversation:
    """An opening that is read and not scored, then items one after another."""

    opening: tuple[Turn, ...]
    items: tuple[Item, ...]

    @property
    def dialogue(self) -> Dialogue:
        """Opening and items as one chat."""
        turns = [turn for item in self.items for turn in item.turns]
        return Dialogue("", (*self.opening, *turns))

    @property
    def digest(self) -> str:
        """Hex sha256 of everything in it."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def words(self) -> int:
        """Words of all turns: what a pass over it costs, before there is a tokenizer."""
        return sum(len(turn.content.split()) for turn in self.dialogue.turns)


@dataclass(frozen=True)
class Family:
    """Items of one kind. what: the ability in a few words."""

    name: str
    what: str
    conversations: tuple[Conversation, ...]

    @property
    def items(self) -> tuple[Item, ...]:
        """All items, conversation by conversation."""
        return tuple(item for one in self.conversations for item in one.items)


def reading(text: str) -> tuple[Turn, ...]:
    """An opening in which the user gives a text to read."""
    return Turn("user", text), Turn("assistant", "I have read it. What would you like to know?")


def with_rivals(items: Sequence[Item], number: int = 3) -> tuple[Item, ...]:
    """The items, with references of the next ones that begin with another word as rivals."""
    return tuple(
        Item(one.question, one.reference, one.lead, _following(items, at, number), one.tag)
        for at, one in enumerate(items)
    )


def _following(items: Sequence[Item], at: int, number: int) -> tuple[str, ...]:
    found: dict[str, str] = {_first_word(items[at]): ""}
    for step in range(1, len(items)):
        other = items[(at + step) % len(items)]
        found.setdefault(_first_word(other), other.reference)
        if len(found) > number:
            break
    return tuple(found.values())[1:]


def _first_word(item: Item) -> str:
    return item.reference.split()[0].strip(".,;:!?").lower()
