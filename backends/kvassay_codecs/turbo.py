"""turbo: kvassay's own codec, as the reference backend encodes it (docs/numeric-contract.md).

Two rounds of signs and Hadamard blocks, integer codebooks, one u8 scale a vector, keys centred by
page. Nothing is re-implemented here: codes and scales come from the reference. The 64 bytes of a
page's header are left out, as they are for every codec of this family.

`choice` goes beyond what a cache of a spec stores.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvassay.codec import Codec as StreamCodec
from kvassay.codec import parse_codec
from kvassay.spec import SCALE_KINDS
from kvassay.tiles import pack_keys, pack_values, unpack_keys, unpack_values
from kvassay.vector_codec import RESIDUAL
from kvassay_backends.reference import codebook, turbo
from kvassay_backends.reference.scales import Scales
from kvassay_backends.reference.transform import KEYS, VALUES, Transform, read_gain

from .base import F32, Codec, Held, Shape, f32, residual, with_residual
from .centring import CENTRES, Centring


class Turbo(Codec):
    """Codes in tiles, a u8 scale a vector and a float32 maximum a page, fp16 means of pages.

    centre: "page" takes the mean of a page off and holds it, the default for keys; "frozen" takes
    off and holds that of the first page alone; "none" is the default for values. choice: take it
    off only those tokens that it makes shorter, and hold a bit a token. scale: "u8", "u8log" or
    "fp16". rounds: of the transform, 1 or 2. page: tokens. Those beyond the last whole page are
    fp16.
    """

    paper = "docs/numeric-contract.md"
    granularity = "vector, and page of 64 tokens"
    claim = "none: this project's own"
    rates = (3.5, 2.0, 2.5, 3.0, 4.0)

    def __init__(
        self,
        *,
        centre: str | None = None,
        choice: bool = False,
        scale: str = "u8",
        rounds: int = 2,
        page: int = 64,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        default = "page" if self.role == "key" else "none"
        centre = self._choice("centre", centre or default, CENTRES)
        if self._flag("choice", choice) and centre == "none":
            raise self._refuse("choice has no meaning without centring; set centre")
        self._centring = Centring(centre, choice)
        self.scale = self._choice("scale", scale, SCALE_KINDS)
        self.rounds = self._integer("rounds", rounds, 1, 2)
        self.page = self._integer("page", page, 16, 1024)
        if self.page % 16:
            raise self._refuse(f"page {page} is not a multiple of 16")

    def _pack(self, x: F32) -> Held:
        heads, tokens, d = x.shape
        at = tokens - tokens % self.page
        if not at:
            return residual(x)
        stored = x[:, :at].astype(np.float16)  # as a cache gets them: through its fp16 residual
        grid = stored.reshape(heads, -1, self.page, d)
        centred, held = self._centring.take_off(grid)
        key = self.role == "key"
        rows = centred.reshape(-1, self.page, d)
        coded = turbo.encode(self._stream(), rows, self._transform(), self.scale, None, key)
        packer = pack_keys if key else pack_values
        held["codes"] = packer(coded.codes, self._stream().splits(d))
        held["scales"] = coded.scales.stored
        if coded.scales.maxima is not None:
            held["scale maxima"] = coded.scales.maxima
        return held | residual(x[:, at:])

    def _unpack(self, held: Held, shape: Shape) -> F32:
        heads, tokens, d = shape
        at = tokens - tokens % self.page
        if not at:
            return f32(held[RESIDUAL])
        transform = self._transform()
        unpacker = unpack_keys if self.role == "key" else unpack_values
        codes = unpacker(held["codes"], self._stream().splits(d), self.page)
        c = f32(turbo.decode(codes, codebook.spans(self._stream(), d)))
        scales = Scales(self.scale, held["scales"], held.get("scale maxima"))
        factor = scales.factor * scales.unit[:, np.newaxis] * read_gain(transform.exponent)
        grid = transform.inverse(c * factor[..., np.newaxis]).reshape(heads, -1, self.page, d)
        grid = self._centring.put_back(grid, held)
        return with_residual(grid.reshape(heads, at, d), held)

    def _stream(self) -> StreamCodec:
        return parse_codec(f"turbo:{self.bits:g}", "keys")

    def _transform(self) -> Transform:
        return Transform(
            self.head_dim, self.rounds, self.seed, KEYS if self.role == "key" else VALUES
        )
