"""How one vector is stored: which code, of how many channels, in which shape of array.

The arithmetic is in docs/retrieval.md; backends execute it, this module only says the sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from ..errors import InputError
from ..page.tiles import LANES

BITS: Final = (2, 3, 4)
MAX_DIM: Final = 8192
#: Channels of a slab at most: what the kernels of key scans take at once, and a power of two.
MAX_SLAB: Final = 512
#: Largest magnitude that a vector's largest component may have, and the smallest unless all are 0:
#: squares of sums, twice rotated, then stay within float32.
LARGEST: Final = 2.0**40
SMALLEST: Final = 2.0**-40
#: No id is larger, so that the next one, and sums of ids and counts, are int64 too.
LARGEST_ID: Final = 2**62 - 1
#: Beyond any scale of such vectors; behind it a score may be no number.
LARGEST_SCALE: Final = 2.0**64

#: Outer centroid of a code, and its distance in standard deviations at the codebook's best unit.
_CENTROIDS: Final = {
    2: (3, 10),
    3: (7, 22, 39, 62),
    4: (3, 9, 15, 21, 28, 36, 46, 61),
}
_FIRST_THRESHOLD: Final = {2: "0x1.f6a4f8p-1", 3: "0x1.012430p-1", 4: "0x1.134566p-2"}


@dataclass(frozen=True)
class VectorCode:
    """A code of `bits` a channel for vectors of `dim` components; `seed` fixes its rotation.

    Raises InputError for what is none.
    """

    dim: int
    bits: int
    seed: int = 0

    def __post_init__(self) -> None:
        dim = _integer("dim", self.dim)
        if not 1 <= dim <= MAX_DIM:
            raise InputError(f"dim: {dim} is outside 1 .. {MAX_DIM}")
        if _integer("bits", self.bits) not in BITS:
            raise InputError(f"bits: {self.bits} is not one of {', '.join(map(str, BITS))}")
        if not 0 <= _integer("seed", self.seed) < 1 << 64:
            raise InputError(f"seed: {self.seed} is outside 0 .. 2^64 - 1")

    @cached_property
    def slabs(self) -> int:
        """Groups of channels that are stored apart."""
        return -(-self.dim // MAX_SLAB)

    @cached_property
    def width(self) -> int:
        """Channels of a slab, a multiple of 16."""
        return -(-self.dim // (LANES * self.slabs)) * LANES

    @property
    def channels(self) -> int:
        """Channels that are stored: `dim` rounded up, by zeros in the input, to equal slabs."""
        return self.slabs * self.width

    @property
    def block(self) -> int:
        """Channels that one Hadamard block mixes: the largest power of two in a slab."""
        return self.width & -self.width

    @property
    def code_bytes(self) -> int:
        """Bytes of the codes of one vector."""
        return self.channels * self.bits // 8

    @property
    def unit(self) -> float:
        """Standard deviations that one step of the integer centroids stands for."""
        first, second = _CENTROIDS[self.bits][:2]
        return float.fromhex(_FIRST_THRESHOLD[self.bits]) / ((first + second) / 2)

    @property
    def outer(self) -> float:
        """The outer centroid in standard deviations."""
        return _CENTROIDS[self.bits][-1] * self.unit


def _integer(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InputError(f"{what}: {value!r} is not an integer")
    return int(value)
