"""Reading sealed pages: logits from key streams, weighted sums from value streams (sections 8 and
10).

Arrays have the axes (pages, heads, rows, tokens or channels); rows are the queries of a KV head's
group. The integers that come out of the bytes live only as long as the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvassay.page.tiles import unpack_keys, unpack_values
from kvassay.spec import LayerSpec
from kvassay.streams import Codec

from . import kivi, turbo
from .arithmetic import F16, F32, const, d16, f32, integer_dot, ordered_sum, rne, s16, single
from .codebook import spans
from .encode import layout_of
from .query import KIVI_BOUND, Query, integer_vector, projection_constant
from .scales import Scales
from .transform import gain_exponent

WEIGHT_BOUND: Final = 16383
_LEAST_WEIGHT: Final = np.float32(2.0**-60)


class PageStack:
    """Some pages of a layer side by side."""

    def __init__(self, spec: LayerSpec, pages: Sequence[bytes]) -> None:
        self.spec = spec
        self._layout = layout_of(spec)
        self._raw = np.frombuffer(b"".join(pages), np.uint8).reshape(len(pages), -1)

    def read(self, name: str) -> NDArray[Any]:
        """A stream as (pages, heads, ...)."""
        where = self._layout[name]
        part = np.ascontiguousarray(self._raw[:, where.offset : where.offset + where.size])
        return part.view(where.dtype).reshape(-1, *where.shape)

    def scales(self, stored: str, maxima: str) -> Scales:
        """A scale stream with its maxima."""
        top = self.read(maxima) if maxima in self._layout else None
        return Scales(self.spec.scale, self.read(stored), top)

    def codes(self, codec: Codec, name: str) -> NDArray[np.uint8]:
        """Codes (pages, heads, tokens, d) of `key_codes`, `key_signs` or `value_codes`."""
        d = self.spec.head_dim
        splits = ((0, d, 1),) if name == "key_signs" else codec.splits(d)
        unpack = unpack_values if name == "value_codes" else unpack_keys
        return unpack(self.read(name), splits, self.spec.page_tokens)


def page_logits(stack: PageStack, query: Query, frozen_mean: F16 | None) -> F32:
    """t (pages, heads, rows, tokens), in units of log 2."""
    spec = stack.spec
    if spec.keys.family == "fp16":
        t = _rows_dot(query.log2, f32(stack.read("key_codes")))
    elif spec.keys.family == "kivi":
        t = _kivi_logits(stack, query)
    else:
        t = _turbo_logits(stack, query)
    if spec.key_centre == "none":
        return t
    mean = f32(stack.read("key_mean") if frozen_mean is None else frozen_mean[np.newaxis])
    return single(t + d16(query.log2, mean[:, :, np.newaxis])[..., np.newaxis])


def _rows_dot(rows: F32, keys: F32) -> F32:
    """D16 of rows (heads, rows, d) with keys (..., heads, tokens, d)."""
    return d16(rows[:, :, np.newaxis], keys[..., np.newaxis, :, :])


def _turbo_logits(stack: PageStack, query: Query) -> F32:
    codec = stack.spec.keys
    assert query.rotated is not None
    books = spans(codec, stack.spec.head_dim)
    centroids = turbo.decode(stack.codes(codec, "key_codes"), books)
    scales = stack.scales("key_scales", "key_maxima")
    i = integer_dot(query.rotated.qi, centroids.swapaxes(-1, -2))
    unit = scales.unit[..., np.newaxis, np.newaxis]
    t = single(
        single(f32(i) * scales.factor[:, :, np.newaxis])
        * single(query.rotated.qs[..., np.newaxis] * unit)
    )
    if query.projected is None:
        return t
    signs = 2 * stack.codes(codec, "key_signs").astype(np.int32) - 1
    norms = stack.scales("key_norms", "norm_maxima")
    i2 = integer_dot(query.projected.qi, signs.swapaxes(-1, -2))
    exponent = gain_exponent(stack.spec.head_dim, stack.spec.rounds)
    k = projection_constant(stack.spec.head_dim, exponent)
    gain = single(
        single(query.projected.qs[..., np.newaxis] * norms.unit[..., np.newaxis, np.newaxis]) * k
    )
    return single(t + single(single(f32(i2) * norms.factor[:, :, np.newaxis]) * gain))


def _kivi_logits(stack: PageStack, query: Query) -> F32:
    codes = stack.codes(stack.spec.keys, "key_codes")
    steps, minima = f32(stack.read("key_steps")), f32(stack.read("key_minima"))
    parts = []
    for g, tokens in enumerate(kivi.groups(stack.spec.page_tokens)):
        z = single(query.log2 * steps[:, :, g, np.newaxis])
        integer = integer_vector(z, KIVI_BOUND)
        bias = d16(query.log2, minima[:, :, g, np.newaxis])
        i = integer_dot(integer.qi, codes[:, :, tokens].swapaxes(-1, -2))
        parts.append(single(single(f32(i) * integer.qs[..., np.newaxis]) + bias[..., np.newaxis]))
    return np.concatenate(parts, axis=-1)


@dataclass(frozen=True)
class WeightedValues:
    """What each page adds to the output: `numbers` (pages, heads, rows, d), times `factor` where
    there is one."""

    numbers: F32
    factor: F32 | None

    def term(self, page: int, be: F32) -> F32:
        """The contribution of a page at weight `be` (heads, rows)."""
        weight = be if self.factor is None else single(self.factor[page] * be)
        return single(self.numbers[page] * weight[..., np.newaxis])


def weigh_values(stack: PageStack, p: F32) -> WeightedValues:
    """The values of every page weighted by p (pages, heads, rows, tokens), +0 where masked."""
    codec = stack.spec.values
    if codec.family == "fp16":
        return WeightedValues(ordered_sum(p, f32(stack.read("value_codes"))), None)
    codes = stack.codes(codec, "value_codes")
    if codec.family == "kivi":
        return WeightedValues(_weigh_kivi(stack, p, codes), None)
    scales = stack.scales("value_scales", "value_maxima")
    largest, whole = _whole_weights(single(p * scales.factor[:, :, np.newaxis]))
    centroids = turbo.decode(codes, spans(codec, stack.spec.head_dim))
    step = single(largest * const(1 / WEIGHT_BOUND))
    factor = single(step * scales.unit[..., np.newaxis])
    return WeightedValues(f32(integer_dot(whole, centroids)), factor)


def _weigh_kivi(stack: PageStack, p: F32, codes: NDArray[np.uint8]) -> F32:
    steps, minima = f32(stack.read("value_steps")), f32(stack.read("value_minima"))
    parts = []
    for g, channels in enumerate(kivi.groups(stack.spec.head_dim)):
        largest, whole = _whole_weights(single(p * steps[:, :, g, np.newaxis]))
        a = integer_dot(whole, codes[..., channels])
        offset = s16(single(p * minima[:, :, g, np.newaxis]))
        scaled = single(f32(a) * single(largest * const(1 / WEIGHT_BOUND))[..., np.newaxis])
        parts.append(single(scaled + offset[..., np.newaxis]))
    return np.concatenate(parts, axis=-1)


def _whole_weights(w: F32) -> tuple[F32, F32]:
    """W (..., rows) and weights (..., rows, tokens) as whole numbers up to 16383, all 0 where W
    is tiny."""
    largest = w.max(axis=-1)
    tiny = largest < _LEAST_WEIGHT
    factor = single(np.float32(WEIGHT_BOUND) / np.where(tiny, np.float32(1), largest))
    whole = rne(single(w * factor[..., np.newaxis]))
    return largest, np.where(tiny[..., np.newaxis], np.float32(0), whole)
