"""What executes the code of an index: a scorer, one variant of a backend.

A scorer owns nothing. Codes, scales, ids and masks belong to the index, so that every scorer reads
what any other has written; all give the same bits (docs/retrieval.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..protocol import Availability
from .code import VectorCode

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Affine:
    """A calibration: rotated channel c, in units of the vector's root mean square, is coded as
    `(w[c] - shift[c]) * gain[c]`. Both float32 (channels,).

    gain None: the shift is the mean of the rotated, unscaled vectors, and what they differ from it
    by is coded.
    """

    shift: F32
    gain: F32 | None

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.shift.nbytes + (0 if self.gain is None else self.gain.nbytes)


@dataclass(frozen=True, eq=False)
class Stored:
    """The vectors a search reads.

    tiles: uint8 (slabs, blocks, width * bits * 2), blocks of 16 vectors in the key order of
    docs/page-format.md. scales: float32 (16 * blocks,). count: vectors, the others being padding.
    """

    tiles: U8
    scales: F32
    count: int


class Scorer(Protocol):
    """One variant of one backend. Arrays are C-contiguous and were checked by the index."""

    name: str
    variant: str

    def rotate(self, code: VectorCode, x: F32) -> F32:
        """x (n, dim) as (n, channels): twice signs and block Hadamard, unscaled (gain block)."""
        ...

    def encode(self, code: VectorCode, affine: Affine | None, x: F32) -> tuple[U8, F32]:
        """Codes (n, channels), one a byte, and scales (n,) of x (n, dim)."""
        ...

    def search(
        self,
        code: VectorCode,
        affine: Affine | None,
        stored: Stored,
        q: F32,
        k: int,
        allowed: U8 | None,
    ) -> tuple[F32, Rows]:
        """The k best of `stored` for each row of q (n, dim): scores and rows, both (n, k), best
        first, equal scores by row. `allowed` (count,): rows that are 0 are passed over; at least
        k are not."""
        ...


class ScorerProvider(Protocol):
    """What an entry point of the group `kvassay.scorers` names."""

    name: str

    def variants(self) -> Mapping[str, Availability]:
        """Every variant, best first, with its availability."""
        ...

    def load(self, variant: str) -> Any:
        """The Scorer of a variant that runs here."""
        ...
