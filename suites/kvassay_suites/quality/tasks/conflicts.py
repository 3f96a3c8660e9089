"""Conflicting sources: an old guide and a new one disagree, and the new one is to be believed."""

from __future__ import annotations

from typing import Final

from .item import Conversation, Family, Item, reading
from .words import DAYS, PLACES, Picker

_ITEMS: Final = 15


def _conversation(seed: int) -> Conversation:
    pick = Picker(seed)
    places = pick.some(PLACES, _ITEMS)
    days = [pick.some(DAYS, 4) for _ in places]
    old = [f"The {place} is closed on {day[0]}." for place, day in zip(places, days, strict=True)]
    new = [f"The {place} is closed on {day[1]}." for place, day in zip(places, days, strict=True)]
    text = (
        "Two guides to the same town disagree. The new guide is right, the old one is out of "
        f"date.\n\nOld guide: {' '.join(old)}\n\nNew guide: {' '.join(pick.some(new, _ITEMS))}"
    )
    items = [
        Item(
            question=f"On which day is the {place} closed?",
            lead=f"According to the new guide, the {place} is closed on",
            reference=f" {day[1]}.",
            rivals=tuple(f" {other}." for other in (day[0], *day[2:])),
        )
        for place, day in zip(places, days, strict=True)
    ]
    return Conversation(reading(text), tuple(pick.some(items, _ITEMS)))


FAMILY: Final = Family(
    "conflicts", "believing the better of two sources", (_conversation(300), _conversation(301))
)
