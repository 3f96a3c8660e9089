"""turbo: kvassay's own codec, as the reference backend encodes it (docs/numeric-contract.md).

Two rounds of signs and Hadamard blocks, integer codebooks, one u8 scale a vector, keys centred by
page. Nothing is re-implemented here: codes and scales come from the reference. The 64 bytes of a
page's header are left out, as they are for every codec here.

`choice` and the centre "rope" go beyond what a cache of a spec stores.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvassay.page.tiles import pack_keys, pack_values, unpack_keys, unpack_values
from kvassay.spec import SCALE_KINDS
from kvassay.streams import Codec as StreamCodec
from kvassay.streams import parse_codec
from kvassay_backends.reference import codebook, turbo
from kvassay_backends.reference.scales import Scales
from kvassay_backends.reference.transform import KEYS, VALUES, Transform, read_gain

from .base import F32, Held, Shape, f32
from .centring import Paged


class Turbo(Paged):
    """Codes in tiles, a u8 scale a vector and a float32 maximum a page, fp16 means of pages.

    centre: "page" by default for keys, "none" for values; it and the others as `Paged` has them.
    scale: "u8", "u8log" or "fp16". rounds: of the transform, 1 or 2.
    """

    paper = "docs/numeric-contract.md"
    granularity = "vector, and page of 64 tokens"
    claim = "none: this project's own"
    rates = (3.5, 2.0, 2.5, 3.0, 4.0)

    def __init__(
        self,
        *,
        centre: str | None = None,
        scale: str = "u8",
        rounds: int = 2,
        **common: Any,
    ) -> None:
        default = "page" if common["role"] == "key" else "none"
        super().__init__(centre=centre or default, **common)
        self.scale = self._choice("scale", scale, SCALE_KINDS)
        self.rounds = self._integer("rounds", rounds, 1, 2)

    def _pack_rest(self, x: F32) -> Held:
        key, pages = self.role == "key", x.reshape(-1, self.page, self.head_dim)
        coded = turbo.encode(self._stream(), pages, self._transform(), self.scale, None, key)
        packer = pack_keys if key else pack_values
        held: Held = {
            "codes": packer(coded.codes, self._stream().splits(self.head_dim)),
            "scales": coded.scales.stored,
        }
        if coded.scales.maxima is not None:
            held["scale maxima"] = coded.scales.maxima
        return held

    def _unpack_rest(self, held: Held, shape: Shape) -> F32:
        transform, d = self._transform(), self.head_dim
        unpacker = unpack_keys if self.role == "key" else unpack_values
        codes = unpacker(held["codes"], self._stream().splits(d), self.page)
        c = f32(turbo.decode(codes, codebook.spans(self._stream(), d)))
        scales = Scales(self.scale, held["scales"], held.get("scale maxima"))
        factor = scales.factor * scales.unit[:, np.newaxis] * read_gain(transform.exponent)
        x: F32 = transform.inverse(c * factor[..., np.newaxis]).reshape(shape)
        return x

    def _stream(self) -> StreamCodec:
        return parse_codec(f"turbo:{self.bits:g}", "keys")

    def _transform(self) -> Transform:
        return Transform(
            self.head_dim, self.rounds, self.seed, KEYS if self.role == "key" else VALUES
        )
