"""Any codec of the family after centring: this project's own (docs/codecs.md, "Centring")."""

from __future__ import annotations

from typing import Any

import numpy as np

import kvassay
from kvassay.vector_codec import RESIDUAL

from .base import F32, Codec, Held, Shape, f32, residual, with_residual
from .centring import CENTRES, Centring


class Centred(Codec):
    """What another codec holds of the tokens less their means; fp16 means of pages, a bit a token.

    of: name of that codec, by default eden_unbiased for keys and eden_biased for values. centre:
    "page" takes the mean of a page off, the default for keys; "frozen" that of the first page
    alone, the default for values; "none". choice: take it off only those tokens that it makes
    shorter, the default, and hold a bit a token. page: tokens. Those beyond the last whole page are
    fp16.
    """

    paper = "docs/codecs.md; that of the other codec"
    granularity = "token, page of 64 tokens, and that of the other codec"
    claim = "none: this project's own"
    rates = (4.0, 1.0, 2.0, 2.5, 3.0, 3.5, 5.0, 6.0)

    def __init__(
        self,
        *,
        of: str | None = None,
        centre: str | None = None,
        choice: bool = True,
        page: int = 64,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        key = self.role == "key"
        if of in ("centred", "turbo"):
            raise self._refuse(f"of {of!r}: it centres by itself")
        self._centring = Centring(
            self._choice("centre", centre or ("page" if key else "frozen"), CENTRES),
            self._flag("choice", choice),
        )
        self.page = self._integer("page", page, 16, 1024)
        if self.page % 16:
            raise self._refuse(f"page {page} is not a multiple of 16")
        self._of: Codec = kvassay.codec(  # type: ignore[assignment]
            of or ("eden_unbiased" if key else "eden_biased"),
            bits=self.bits,
            head_dim=self.head_dim,
            role=self.role,
            seed=self.seed,
        )
        if self._of.learns:
            raise self._refuse(f"of {of!r}: it learns from data, which is not supported here")

    def _pack(self, x: F32) -> Held:
        heads, tokens, d = x.shape
        at = tokens - tokens % self.page
        if not at:
            return residual(x)
        grid = x[:, :at].astype(np.float16).reshape(heads, -1, self.page, d)
        rest, held = self._centring.take_off(grid)
        inner = self._of._pack(rest.reshape(heads, at, d))
        if RESIDUAL in inner:
            raise self._refuse(
                f"{self._of.name} leaves tokens of a page of {self.page} as fp16; set page"
            )
        return held | {f"of {name}": part for name, part in inner.items()} | residual(x[:, at:])

    def _unpack(self, held: Held, shape: Shape) -> F32:
        heads, tokens, d = shape
        at = tokens - tokens % self.page
        if not at:
            return f32(held[RESIDUAL])
        inner = {name[3:]: part for name, part in held.items() if name.startswith("of ")}
        rest = self._of._unpack(inner, (heads, at, d)).reshape(heads, -1, self.page, d)
        sealed = self._centring.put_back(rest, held)
        return with_residual(sealed.reshape(heads, at, d), held)
