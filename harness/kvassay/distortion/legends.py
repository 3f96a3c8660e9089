"""What words of the tables mean, said below them."""

from __future__ import annotations

from typing import Final

#: What the digest over a table is of.
INPUTS: Final = (
    "inputs: the first 12 hex digits of the SHA-256 of the keys, values and queries that every "
    "codec was given; figures of equal inputs may be compared"
)


def losses(role: str) -> str:
    """What codecs of keys, or of values, are judged by."""
    return "attention KL" if role == "key" else "NMSE"


def loses_to(what: str, loss: str) -> str:
    """Of the column of that name: `what` stands in a row, `loss` is what they are judged by."""
    return (
        f"loses to: of those of no more page bits the {what} of least {loss}, where it has less "
        f"than this one; empty where there is none"
    )
