"""turbo: kvassay's own codec, as the reference backend encodes it (docs/numeric-contract.md).

Two rounds of signs and Hadamard blocks, integer codebooks, one u8 scale a vector, keys centred by
page. Nothing is re-implemented here: codes and scales come from the reference. The 64 bytes of a
page's header are left out, as they are for every codec of this family.

`choice` goes beyond what a cache of a spec stores: a bit a token says whether the mean was taken
off. Tokens that much attention rests on often have short keys and values, far from the mean of
their page; centred, they would be coded as the difference to it, with its error.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvassay.codec import Codec as StreamCodec
from kvassay.codec import parse_codec
from kvassay.spec import SCALE_KINDS
from kvassay.tiles import pack_keys, pack_values, unpack_keys, unpack_values
from kvassay.vector_codec import FITTED, RESIDUAL
from kvassay_backends.reference import codebook, turbo
from kvassay_backends.reference.encode import page_mean
from kvassay_backends.reference.scales import Scales
from kvassay_backends.reference.transform import KEYS, VALUES, Transform, read_gain

from .base import F32, Codec, Held, Shape, f16, f32, residual, with_residual

#: Held once a layer, outside the pages.
_FROZEN: Final = f"{FITTED} mean"


class Turbo(Codec):
    """Codes in tiles, a u8 scale a vector and a float32 maximum a page, fp16 means of pages.

    centre: "page" takes the mean of a page off and holds it, the default for keys; "frozen" takes
    off and holds that of the first page alone; "none" is the default for values. choice: take it
    off only those tokens that it makes shorter, and hold a bit a token. mean: "plain", or
    "relative", that of least error relative to each token's length. scale: "u8", "u8log" or
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
        mean: str = "plain",
        scale: str = "u8",
        rounds: int = 2,
        page: int = 64,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        default = "page" if self.role == "key" else "none"
        self.centre = self._choice("centre", centre or default, ("page", "frozen", "none"))
        if not isinstance(choice, bool):
            raise self._refuse(f"choice {choice!r} is neither True nor False")
        if choice and self.centre == "none":
            raise self._refuse("choice has no meaning without centring; set centre")
        self.choice = choice
        self.mean = self._choice("mean", mean, ("plain", "relative"))
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
        centred, held = self._centred(grid)
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
        if self.centre != "none":
            grid = grid + self._shift(held, grid.shape)
        return with_residual(grid.reshape(heads, at, d), held)

    def _centred(self, grid: NDArray[np.float16]) -> tuple[F32, Held]:
        """Pages (heads, pages, page, d) less what is taken off them, and what tells that."""
        x = f32(grid)
        if self.centre == "none":
            return x, {}
        heads, _, _, d = grid.shape
        meant = grid[:, 0] if self.centre == "frozen" else grid.reshape(-1, self.page, d)
        means = self._mean(meant).reshape(heads, -1, d)
        held: Held = {_FROZEN if self.centre == "frozen" else "means": means}
        shift = f32(means)[:, :, np.newaxis]
        if self.choice:
            shorter = np.square(x - shift).sum(-1) < np.square(x).sum(-1)
            held["centred"] = np.packbits(shorter, axis=-1)
        return x - self._shift(held, grid.shape), held

    def _mean(self, pages: NDArray[np.float16]) -> NDArray[np.float16]:
        """fp16 (pages, d) of pages (pages, page, d)."""
        if self.mean == "plain":
            return page_mean(pages)
        x = f32(pages)
        weight = 1 / np.maximum(np.square(x).sum(-1, keepdims=True), np.float32(1e-12))
        return f16("a mean", (x * weight).sum(1) / weight.sum(1))

    def _shift(self, held: Held, shape: tuple[int, ...]) -> F32:
        """What is taken off pages of that shape."""
        means = f32(held[_FROZEN if self.centre == "frozen" else "means"])[:, :, np.newaxis]
        if not self.choice:
            return means
        bits = np.unpackbits(held["centred"], axis=-1)
        shift: F32 = means * bits.reshape(*shape[:3], 1).astype(np.float32)
        return shift

    def _stream(self) -> StreamCodec:
        return parse_codec(f"turbo:{self.bits:g}", "keys")

    def _transform(self) -> Transform:
        return Transform(
            self.head_dim, self.rounds, self.seed, KEYS if self.role == "key" else VALUES
        )
