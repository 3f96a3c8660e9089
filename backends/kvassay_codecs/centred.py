"""Any codec of this package after centring: this project's own (docs/codecs.md, "Centring")."""

from __future__ import annotations

from typing import Any

import kvassay
from kvassay.vector_codec import RESIDUAL

from .base import F32, Codec, Held, Shape
from .centring import Paged

_OF = "of "


class Centred(Paged):
    """What another codec holds of the tokens less their means; fp16 means of pages, a bit a token.

    of: name of that codec, by default eden_unbiased for keys and eden_biased for values. centre:
    "page" by default for keys, "frozen" for values. choice: True by default. Both, and the others,
    as `Paged` has them.
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
        **common: Any,
    ) -> None:
        key = common["role"] == "key"
        super().__init__(centre=centre or ("page" if key else "frozen"), choice=choice, **common)
        if of in ("centred", "turbo"):
            raise self._refuse(f"of {of!r}: it centres by itself")
        made = kvassay.codec(
            of or ("eden_unbiased" if key else "eden_biased"),
            bits=self.bits,
            head_dim=self.head_dim,
            role=self.role,
            seed=self.seed,
        )
        if not isinstance(made, Codec) or made.learns:
            raise self._refuse(f"of {of!r}: it learns from data, which is not supported here")
        self._of = made

    def _pack_rest(self, x: F32) -> Held:
        held = self._of._pack(x)
        if RESIDUAL in held:
            raise self._refuse(
                f"{self._of.name} leaves tokens of a page of {self.page} as fp16; set page"
            )
        return {f"{_OF}{name}": array for name, array in held.items()}

    def _unpack_rest(self, held: Held, shape: Shape) -> F32:
        inner = {
            name.removeprefix(_OF): array for name, array in held.items() if name.startswith(_OF)
        }
        return self._of._unpack(inner, shape)
