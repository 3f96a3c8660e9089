"""Taking means off tokens before they are coded, shared by `turbo` and `centred`.

Keys move slowly along the tokens, so the mean of a page has most of their energy. Tokens that much
attention rests on often have short keys and values, far from that mean; centred, they would be
coded as the difference to it, with its error. So a token may keep to itself: a bit says which do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvassay.vector_codec import FITTED
from kvassay_backends.reference.encode import page_mean

from .base import F32, Held, f32

CENTRES: Final = ("page", "frozen", "none")
#: Held once a layer, outside the pages.
_FROZEN: Final = f"{FITTED} mean"
_PAGE: Final = "means"
_CHOICE: Final = "centred"


@dataclass(frozen=True)
class Centring:
    """centre: "page" takes off the mean of each page, "frozen" that of the first page, "none" none.
    choice: only where that makes the token shorter."""

    centre: str
    choice: bool

    def take_off(self, grid: NDArray[np.float16]) -> tuple[F32, Held]:
        """Pages (heads, pages, page, d) less what is taken off, and the arrays that tell it."""
        x = f32(grid)
        if self.centre == "none":
            return x, {}
        heads, _, page, d = grid.shape
        meant = grid[:, 0] if self.centre == "frozen" else grid.reshape(-1, page, d)
        means = page_mean(meant).reshape(heads, -1, d)
        held: Held = {_FROZEN if self.centre == "frozen" else _PAGE: means}
        if self.choice:
            shorter = np.square(x - f32(means)[:, :, np.newaxis]).sum(-1) < np.square(x).sum(-1)
            held[_CHOICE] = np.packbits(shorter, axis=-1)
        return x - self._shift(held, grid.shape), held

    def put_back(self, grid: F32, held: Held) -> F32:
        """The inverse of `take_off`, after what a codec did."""
        return grid if self.centre == "none" else grid + self._shift(held, grid.shape)

    def _shift(self, held: Held, shape: tuple[int, ...]) -> F32:
        means = f32(held[_FROZEN if self.centre == "frozen" else _PAGE])[:, :, np.newaxis]
        if not self.choice:
            return means
        bits = np.unpackbits(held[_CHOICE], axis=-1).reshape(*shape[:3], 1)
        shift: F32 = means * bits.astype(np.float32)
        return shift
