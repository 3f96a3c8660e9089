"""Task families: conversations written for this project, scored without a judge.

Ship families have one ship metric each (docs/tasks.md); safety has a rule of its own.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from . import chat, code, conflicts, limits, repeated, retrieval, safety, summary, turns
from .item import LEAST_ITEMS, Conversation, Family, Item

#: In the order of tables; `limits`, which takes as long as all others together, comes last.
SHIP_FAMILIES: Final = (
    *("chat", "retrieval", "conflicts", "turns", "summary", "code", "repeated", "limits"),
)
CHAT: Final = "chat"
SAFETY: Final = "safety"
_ALL: Final = (
    *(chat.FAMILY, retrieval.FAMILY, conflicts.FAMILY, turns.FAMILY, summary.FAMILY),
    *(code.FAMILY, repeated.FAMILY, safety.FAMILY, limits.FAMILY),
)
FAMILIES: Final = MappingProxyType({family.name: family for family in _ALL})

__all__ = [
    "CHAT",
    "FAMILIES",
    "LEAST_ITEMS",
    "SAFETY",
    "SHIP_FAMILIES",
    "Conversation",
    "Family",
    "Item",
]
