"""Where a step stands under the roofs of the machine: bytes, operations and the share reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .ceilings import Ceilings
from .work import Owner

#: Parts of a cache that a step reads whole.
READ: Final = ("codes", "scales", "means", "headers", "residual", "sinks")


@dataclass(frozen=True)
class Place:
    """A step's bytes and operations, and how fast they went.

    Operations are those of attention itself, a multiplication and an addition for each value of
    each query head's keys and values, whatever a codec adds to them; so presets compare.
    """

    bytes: int
    operations: int
    seconds: float

    @classmethod
    def of(cls, whose: Owner, parts: Mapping[str, int], nanoseconds: float) -> Place:
        """Of one attend over all tokens."""
        shape = whose.shape
        return cls(
            bytes=sum(parts.get(name, 0) for name in READ),
            operations=4 * shape.query_heads * shape.head_dim * whose.tokens,
            seconds=nanoseconds / 1e9,
        )

    def least_seconds(self, found: Ceilings) -> float:
        """What the roofs allow: the longer of reading the bytes and doing the operations."""
        return max(self.bytes / found.bandwidth, self.operations / found.operations)

    def detail(self, found: Ceilings) -> dict[str, float]:
        """Figures for a plot."""
        return {
            "bytes": self.bytes,
            "operations": self.operations,
            "seconds": self.seconds,
            "bandwidth": found.bandwidth,
            "peak": found.operations,
        }
