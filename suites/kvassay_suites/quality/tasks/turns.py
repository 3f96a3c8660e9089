"""Current turn over older ones: what the user says now replaces what was said before."""

from __future__ import annotations

from typing import Final

from kvassay.models import Turn

from .item import Conversation, Family, Item
from .words import DAYS, NAMES, Picker

_ITEMS: Final = 15
_DUTIES: Final = ("waters the plants", "cleans the kitchen", "does the shopping")


def _conversation(seed: int) -> Conversation:
    pick = Picker(seed)
    names = pick.some(NAMES, len(NAMES))
    days = [pick.some(DAYS, 4) for _ in names]
    duties = [pick.one(_DUTIES) for _ in names]
    plan = [
        f"{name} {duty} on {day[0]}." for name, duty, day in zip(names, duties, days, strict=True)
    ]
    opening = (
        Turn("user", f"This is the plan of our house for the week. {' '.join(plan)}"),
        Turn("assistant", "Thank you, I have noted the plan. Tell me when something changes."),
    )
    items = [
        Item(
            question=f"The plan has changed: {name} now {duty} on {day[1]}, not on {day[0]}. "
            f"When is it {name}'s turn?",
            lead=f"{name} now {duty} on",
            reference=f" {day[1]}.",
            rivals=tuple(f" {other}." for other in (day[0], *day[2:])),
            tag="changed",
        )
        if number % 3
        else Item(
            question=f"And when is it {name}'s turn? Nothing has changed there.",
            lead=f"{name} {duty} on",
            reference=f" {day[0]}.",
            rivals=tuple(f" {other}." for other in day[1:]),
            tag="unchanged",
        )
        for number, (name, duty, day) in enumerate(zip(names, duties, days, strict=True))
    ]
    return Conversation(opening, tuple(items[:_ITEMS]))


FAMILY: Final = Family(
    "turns",
    "following the newest instruction, not an older one",
    (_conversation(400), _conversation(401)),
)
