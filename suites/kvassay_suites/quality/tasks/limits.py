"""Limits of the context: facts from the first page to the last in a text that fills the context of
SmolLM2, 8,192 tokens, the questions included."""

from __future__ import annotations

from typing import Final

from .item import Family
from .retrieval import hidden_facts

#: Sentences of filler among the facts; a test holds the number of tokens.
_FILLER: Final = 446

FAMILY: Final = Family(
    "limits",
    "finding a fact at any place of a full context",
    (hidden_facts(200, _FILLER, 30, "the whole context"),),
)
