"""Repeated topic: the same few facts are asked about again and again, in other words."""

from __future__ import annotations

from typing import Final

from .item import Conversation, Family, Item, reading
from .words import COLOURS, NAMES, Picker

_THINGS: Final = ("coat", "bicycle", "umbrella", "suitcase", "scarf")
_QUESTIONS: Final = (
    "What colour is the {thing} of {name}?",
    "Remind me: which colour does the {thing} of {name} have?",
    "Back to {name} once more. The colour of the {thing} was?",
)


def _conversation(seed: int) -> Conversation:
    pick = Picker(seed)
    owners = list(zip(pick.some(NAMES, 5), _THINGS, pick.some(COLOURS, 5), strict=True))
    told = [f"{name} has a {colour} {thing}." for name, thing, colour in owners]
    around = [sentence for fact in told for sentence in (pick.sentence(), pick.sentence(), fact)]
    items = [
        Item(
            question=question.format(thing=thing, name=name),
            lead=f"The {thing} of {name} is",
            reference=f" {colour}.",
            rivals=tuple(f" {other}." for other in pick.others(COLOURS, [colour])),
            tag=f"round {number + 1}",
        )
        for number, question in enumerate(_QUESTIONS)
        for name, thing, colour in pick.some(owners, 5)
    ]
    return Conversation(reading(" ".join(around)), tuple(items))


FAMILY: Final = Family(
    "repeated",
    "coming back to the same facts",
    (_conversation(500), _conversation(501)),
)
