"""Long retrieval: facts at ten depths of texts of three lengths."""

from __future__ import annotations

from typing import Final

from .item import Conversation, Family, Item, reading
from .words import COLOURS, PLACES, Picker

#: Tokens of a text, about, and the sentences of filler that make it so long.
_LENGTHS: Final = {280: 10, 600: 30, 1060: 60}
_DEPTHS: Final = 10


def hidden_facts(seed: int, filler: int, facts: int, where: str) -> Conversation:
    """Facts spread evenly among `filler` sentences, the last at the end, and a question a fact."""
    pick = Picker(seed)
    places = pick.some(PLACES, facts)
    colours = [pick.one(COLOURS) for _ in places]
    parts: list[str] = []
    for number, (place, colour) in enumerate(zip(places, colours, strict=True), 1):
        parts += [
            pick.sentence() for _ in range(filler * number // facts - len(parts) + number - 1)
        ]
        parts.append(f"The door of the {place} is {colour}.")
    items = [
        Item(
            question=f"What colour is the door of the {place}?",
            lead=f"The door of the {place} is",
            reference=f" {colour}.",
            rivals=tuple(f" {other}." for other in pick.others(COLOURS, [colour])),
            tag=f"depth {number / facts:.0%} of {where}",
        )
        for number, (place, colour) in enumerate(zip(places, colours, strict=True), 1)
    ]
    text = "Here are some notes about a town.\n\n" + " ".join(parts)
    return Conversation(reading(text), tuple(pick.some(items, facts)))


FAMILY: Final = Family(
    "retrieval",
    "finding a fact in a long text",
    tuple(
        hidden_facts(100 + number, filler, _DEPTHS, f"{length} tokens")
        for number, (length, filler) in enumerate(_LENGTHS.items())
    ),
)
