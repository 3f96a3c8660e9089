"""Taking means off the tokens of a page before they are coded, shared by `turbo` and `centred`.

Keys move slowly along the tokens, so the mean of a page has most of their energy; before RoPE they
hardly move at all, so that one mean a head, turned to each token's position, does as well and costs
no page anything. Tokens that much attention rests on often have short keys and values, far from
any mean; centred, they would be coded as the difference to it, with its error. So a token may keep
to itself: a bit says which do.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvassay.vector_codec import FITTED, RESIDUAL
from kvassay_backends.reference.encode import page_mean

from .base import F32, Codec, Held, Shape, f16, f32, residual, with_residual
from .rope import Rotary

CENTRES: Final = ("page", "frozen", "rope", "none")
#: Held once a layer, outside the pages: the frozen mean, or that before RoPE.
_ONCE: Final = f"{FITTED} mean"
_PAGE: Final = "means"
_CHOICE: Final = "centred"


class Paged(Codec):
    """A codec of whole pages less their means; tokens beyond the last whole page are fp16.

    centre: "page" takes off the mean of a page and holds it; "frozen" that of the first page alone;
    "rope" a mean of keys before RoPE, fitted, turned to the position of each token, for which
    rope_base and rope_order must be those of the keys, token t at position t; "none" none. choice:
    only where that makes a token shorter, with a bit a token. page: tokens.
    """

    def __init__(
        self,
        *,
        centre: str = "none",
        choice: bool = False,
        page: int = 64,
        rope_base: float | None = None,
        rope_order: str = "interleaved",
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.centre = self._choice("centre", centre, CENTRES)
        if not isinstance(choice, bool):
            raise self._refuse(f"choice {choice!r} is neither True nor False")
        if choice and centre == "none":
            raise self._refuse("choice has no meaning without centring; set centre")
        self.choice = choice
        self.page = self._integer("page", page, 16, 1024)
        if self.page % 16:
            raise self._refuse(f"page {page} is not a multiple of 16")
        self._choice("rope_order", rope_order, ("interleaved", "half"))
        self._rope = None
        if centre == "rope":
            if self.role == "value" or rope_base is None or not rope_base > 1:
                raise self._refuse(
                    f"centre 'rope' is for keys and needs their rope_base, not {rope_base!r}"
                )
            self._rope = Rotary(self.head_dim, rope_base, rope_order)
        self.learns = self._rope is not None

    @abstractmethod
    def _pack_rest(self, x: F32) -> Held:
        """Arrays that hold whole pages x (heads, tokens, d), means taken off."""

    @abstractmethod
    def _unpack_rest(self, held: Held, shape: Shape) -> F32:
        """x of that shape, as the arrays give it back."""

    def _learn(self, x: F32) -> Held:
        assert self._rope is not None
        return {"mean": f16("a mean", self._rope.turn(x, back=True).mean(axis=1))}

    def _pack(self, x: F32) -> Held:
        heads, tokens, d = x.shape
        at = tokens - tokens % self.page
        if not at:
            return residual(x)
        stored = x[:, :at].astype(np.float16)  # as a cache gets them: through its fp16 residual
        held = self._means(stored.reshape(heads, -1, self.page, d))
        rest = f32(stored)
        if self.centre != "none":
            if self.choice:
                shift = self._shift(held, stored.shape)
                shorter = np.square(rest - shift).sum(-1) < np.square(rest).sum(-1)
                held[_CHOICE] = np.packbits(shorter, axis=-1)
            rest = rest - self._taken_off(held, stored.shape)
        own = {name: array for name, array in held.items() if name != _ONCE or not self.learns}
        return {**own, **self._pack_rest(rest), **residual(x[:, at:])}

    def _unpack(self, held: Held, shape: Shape) -> F32:
        heads, tokens, d = shape
        at = tokens - tokens % self.page
        if not at:
            return f32(held[RESIDUAL])
        sealed = self._unpack_rest(held, (heads, at, d))
        if self.centre != "none":
            sealed = sealed + self._taken_off(held, sealed.shape)
        return with_residual(sealed, held)

    def _means(self, pages: NDArray[np.float16]) -> Held:
        """The means of (heads, pages, page, d), fp16."""
        heads, count, page, d = pages.shape
        if self.centre == "page":
            return {_PAGE: page_mean(pages.reshape(-1, page, d)).reshape(heads, count, d)}
        if self.centre == "frozen":
            return {_ONCE: page_mean(pages[:, 0])}
        return {_ONCE: self._learnt("mean")} if self._rope else {}

    def _shift(self, held: Held, shape: tuple[int, ...]) -> F32:
        """What may be taken off tokens (heads, tokens, d)."""
        if self.centre == "page":
            return np.repeat(f32(held[_PAGE]), self.page, axis=1)
        once = np.broadcast_to(f32(held[_ONCE])[:, np.newaxis], shape)
        return once if self._rope is None else self._rope.turn(once)

    def _taken_off(self, held: Held, shape: tuple[int, ...]) -> F32:
        """What is taken off them."""
        shift = self._shift(held, shape)
        if not self.choice:
            return shift
        bits = np.unpackbits(held[_CHOICE], axis=-1).astype(np.float32)
        chosen: F32 = shift * bits[..., np.newaxis]
        return chosen
