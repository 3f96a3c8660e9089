"""The alarm for figures that are too good: a cache that quantizes leaves a trace of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvassay.records import Record

from .measured import Origin

#: Float32 arithmetic alone moves attention and predictions by 1e-13 to 1e-11 nats, keys and values
#: rounded to fp16 by 1e-7 and more. What lies below was not stored as the spec says.
FLOOR: Final = 1e-9

#: Distances that only an exact copy of the floats makes zero.
WATCHED: Final = ("quality.attention_kl", "quality.next_token_kl", "quality.tiny_kl")


def exact_zeros(origin: Origin, records: Sequence[Record], subject: str) -> Record:
    """How many of the watched distances among the records are below the floor.

    A median or mean over a whole text is compared, never single queries, which may have one
    favourite that no rounding changes.
    """
    watched = [one for one in records if one.check in WATCHED and one.comparisons]
    low = [one for one in watched if one.value < FLOOR]
    return origin.record(
        "exact_zeros",
        len(low),
        "figures",
        len(watched),
        subject,
        floor=FLOOR,
        figures={f"{one.check}, {one.subject}": one.value for one in low},
    )
