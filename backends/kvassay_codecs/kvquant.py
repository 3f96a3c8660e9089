"""KVQuant: Hooper and others, arXiv 2401.18079.

Keys before RoPE, per channel (section 3.1, 3.2); values per token; a non-uniform codebook on
[-1, 1] found by k-means (3.3); 1 % of the numbers kept apart, sparse, in full precision (3.4); the
first tokens in fp16 (3.5). Ranges and codebook of keys are fitted once, offline. The published
k-means weighs numbers by Fisher information, which needs the network's gradients; here they weigh
alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvassay.vector_codec import RESIDUAL

from . import codebooks
from .base import F32, Codec, Held, Shape, f16, f32
from .packing import pack, unpack
from .rope import Rotary
from .sparse import Sparse


class KVQuant(Codec):
    """Codes; outliers as u8 counts a vector, u8 channels and fp16 numbers; first tokens as fp16.

    Fitted and held: fp16 codebook; for keys fp16 range a head and channel. Values hold an fp16
    range a vector instead. rope_base: with it keys arrive after RoPE, as a cache gives them, are
    turned back and stored before it; `score` turns the query instead of the keys. Token t is at
    position t. rope_order: "interleaved" or "half". sparse: share of numbers kept apart. first:
    tokens kept as fp16.
    """

    paper = "arXiv 2401.18079, sections 3.1 to 3.5"
    granularity = "channel (keys), vector (values), number (outliers)"
    claim = "under .1 perplexity lost at 3 bits"
    rates = (3.0, 2.0, 4.0)
    learns = True

    def __init__(
        self,
        *,
        sparse: float = 0.01,
        first: int = 1,
        rope_base: float | None = None,
        rope_order: str = "interleaved",
        **common: Any,
    ) -> None:
        super().__init__(**common)
        if not 0 <= sparse <= 0.25:
            raise self._refuse(f"sparse {sparse!r} is outside 0 .. 0.25")
        self.sparse = sparse
        self.first = self._integer("first", first, 0, 1024)
        self._choice("rope_order", rope_order, ("interleaved", "half"))
        self._rope: Rotary | None = None
        if rope_base is not None:
            if self.role == "value":
                raise self._refuse("rope_base is for keys; values have no RoPE")
            if not rope_base > 1:
                raise self._refuse(f"rope_base {rope_base!r} is not a number above 1")
            self._rope = Rotary(self.head_dim, rope_base, rope_order)

    # --- fitting ----------------------------------------------------------------------------------

    def _learn(self, x: F32) -> Held:
        rows = self._before_rope(x)
        low, high = self._ranges(rows)
        scaled = _to_unit(rows, low, high)
        inliers = scaled[np.abs(scaled) <= 1]
        centroids = codebooks.of_samples(inliers, -1.0, 1.0, int(self.bits))
        learnt: Held = {"codebook": f16("a centroid", centroids)}
        if self.role == "key":
            learnt |= {"lowest": f16("a range", low), "highest": f16("a range", high)}
        return learnt

    def _ranges(self, rows: F32) -> tuple[F32, F32]:
        """Of what is not sparse: a channel of keys (heads, 1, d), a vector of values."""
        if self.role == "key":
            tails = [self.sparse / 2, 1 - self.sparse / 2]
            low, high = np.quantile(rows, tails, axis=1, keepdims=True)
            return low.astype(np.float32), high.astype(np.float32)
        inner = self._value_outliers(rows)
        low = np.where(inner, np.inf, rows).min(axis=2, keepdims=True)
        high = np.where(inner, -np.inf, rows).max(axis=2, keepdims=True)
        return low.astype(np.float32), high.astype(np.float32)

    def _value_outliers(self, rows: F32) -> Any:
        """The numbers of largest magnitude of each vector, at least one where any are wanted."""
        mask = np.zeros(rows.shape, np.bool_)
        if count := int(np.ceil(self.sparse * self.head_dim)):
            where = np.argpartition(np.abs(rows), -count, axis=2)[..., -count:]
            np.put_along_axis(mask, where, True, axis=2)
        return mask

    # --- storing ----------------------------------------------------------------------------------

    def _pack(self, x: F32) -> Held:
        rows = self._before_rope(x)
        held: Held = {}
        if self.first:
            held[RESIDUAL] = rows[:, : self.first].astype(np.float16)
        rows = rows[:, self.first :]
        if not rows.shape[1]:
            return held
        if self.role == "key":
            low, high = f32(self._learnt("lowest")), f32(self._learnt("highest"))
            mask = (rows < low) | (rows > high)
        else:
            low, high = (f32(f16("a range", bound)) for bound in self._ranges(rows))
            held |= {"lowest": low.astype(np.float16), "highest": high.astype(np.float16)}
            mask = self._value_outliers(rows)
        book = f32(self._learnt("codebook")).astype(np.float64)
        scaled = np.clip(_to_unit(rows, low, high), -1, 1)
        codes = codebooks.nearest(scaled, book)
        return {**held, "codes": pack(codes, int(self.bits)), **Sparse.of(rows, mask).arrays}

    def _stored(self, held: Held, shape: Shape) -> F32:
        """The vectors as they are held: keys before RoPE."""
        heads, _, d = shape
        first = f32(held[RESIDUAL]) if self.first else np.empty((heads, 0, d), np.float32)
        if "codes" not in held:
            return first
        fitted = self._learnt if self.role == "key" else held.__getitem__
        low, high = f32(fitted("lowest")), f32(fitted("highest"))
        book = f32(self._learnt("codebook"))
        scaled = book[unpack(held["codes"], int(self.bits), d)]
        rows = ((scaled + 1) * ((high - low) / 2) + low).astype(np.float32)
        Sparse.read(held).put(rows)
        return np.concatenate([first, rows], axis=1)

    def _unpack(self, held: Held, shape: Shape) -> F32:
        stored = self._stored(held, shape)
        return stored if self._rope is None else self._rope.turn(stored)

    def _score(self, held: Held, shape: Shape, q: F32) -> F32:
        stored = self._stored(held, shape)
        if self._rope is None:
            scores: F32 = q @ stored.swapaxes(1, 2)
            return scores
        return self._rope.products(q, stored)

    def _before_rope(self, x: F32) -> F32:
        return x if self._rope is None else self._rope.turn(x, back=True)


def _to_unit(rows: F32, low: F32, high: F32) -> F32:
    """Numbers of [low, high] on [-1, 1]; 0 where the range is a single number."""
    width = high - low
    scaled: F32 = np.where(width > 0, (rows - low) / np.where(width > 0, width, 1) * 2 - 1, 0)
    return scaled.astype(np.float32)
