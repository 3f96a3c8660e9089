"""The three ways a stream is stored, step by step: sections 5 to 8 of the contract, and the values
of section 10. A stream is sealed page by page; `keep` takes the name and the array of each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kvassay.spec import LayerSpec

from .contract import (
    F32,
    KIVI_QUERY_BOUND,
    QUERY_BOUND,
    WEIGHT_BOUND,
    ZERO,
    Codebook,
    Ints,
    Scales,
    Transform,
    const,
    dot16,
    integers,
    ordered_sum,
    store_scales,
    sum16,
)
from .kivi import GROUP, Coded, encode

Keep = Callable[[str, Any], None]
#: Number of the transform that signs go through.
SIGNS: Final = 2


class Keys(Protocol):
    """Keys of one layer. Query heads read KV head `of[head]`."""

    def seal(self, r: F32, keep: Keep) -> None:
        """Store a page of r (kv_heads, tokens, d)."""

    def query(self, ql: F32, keep: Keep) -> None:
        """Section 7, as far as it needs no page."""

    def logits(self, page: int, keep: Keep) -> F32:
        """t (query_heads, tokens) of a page, without its mean."""


class Values(Protocol):
    """Values of one layer."""

    def seal(self, r: F32, keep: Keep) -> None:
        """Store a page of r (kv_heads, tokens, d)."""

    def output(self, page: int, p: F32, be: F32, keep: Keep) -> F32:
        """What a page adds to acc (query_heads, d), for weights p (query_heads, tokens)."""

    def back(self, acc: F32) -> F32:
        """acc in channels."""


def keys_of(spec: LayerSpec, of: Ints, keep: Keep) -> Keys:
    """The keys of a spec; their tables are kept at once."""
    family = spec.keys.family
    if family == "fp16":
        return Fp16Keys(of)
    return KiviKeys(spec, of) if family == "kivi" else TurboKeys(spec, of, keep)


def values_of(spec: LayerSpec, of: Ints, keep: Keep) -> Values:
    """The values of a spec; their tables are kept at once."""
    family = spec.values.family
    if family == "fp16":
        return Fp16Values(of)
    return KiviValues(spec, of) if family == "kivi" else TurboValues(spec, of, keep)


class _Turbo:
    """What keys and values of turbo share: transform, codes, scales."""

    def __init__(self, spec: LayerSpec, number: int, of: Ints, keep: Keep) -> None:
        self.spec, self.of = spec, of
        self.name, codec = ("key", spec.keys) if number == 0 else ("value", spec.values)
        self.turn = Transform.of(spec.head_dim, spec.seed, number, spec.rounds)
        self.book = Codebook.of(codec, spec.head_dim)
        self.levels: list[F32] = []
        self.scales: list[Scales] = []
        keep_tables(self.name, self.turn, keep)
        keep(f"{self.name}.gain", np.array([self.turn.store, self.turn.read]))
        for span, (_, _, limits, half) in enumerate(self.book.spans):
            keep(f"{self.name}.thresholds{span}", np.array(limits, np.float32))
            keep(f"{self.name}.centroids{span}", np.array(half, np.int8))

    def encode(self, r: F32, unbiased: bool, keep: Keep) -> F32:
        """Codes and scales of a page; y = T(r)."""
        y = self.turn.forward(r)
        n2 = dot16(y, y)
        sigma = np.sqrt(n2 * const(1 / self.spec.head_dim))
        codes, levels = self.book.encode(y, sigma)
        e = dot16(y, levels)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = n2 / e if unbiased else e / dot16(levels, levels)
        scale = np.where(n2 == 0, ZERO, ratio * self.turn.store).astype(np.float32)
        stored = store_scales(self.spec.scale, scale)
        self.levels.append(levels)
        self.scales.append(stored)
        keep(f"{self.name}.transformed", y)
        keep(f"{self.name}.sigma", sigma)
        keep(f"{self.name}.codes", codes.astype(np.uint8))
        keep_scales(f"{self.name}.scale", scale, stored, keep)
        return y


def keep_tables(name: str, turn: Transform, keep: Keep) -> None:
    """The tables of a transform."""
    keep(f"{name}.signs1", turn.signs1.astype(np.int8))
    keep(f"{name}.order", turn.order.astype(np.int32))
    keep(f"{name}.signs2", turn.signs2.astype(np.int8))


def keep_scales(name: str, exact: F32, stored: Scales, keep: Keep) -> None:
    """Scales or norms as they are, as stored, and as read back."""
    keep(name, exact)
    keep(f"{name}_stored", stored.stored)
    if stored.maximum is not None:
        keep(f"{name}_maximum", stored.maximum)
    keep(f"{name}_read", stored.su)
    keep(f"{name}_unit", stored.unit)


class TurboKeys(_Turbo):
    """Rotated codes with a scale a vector, and with `+qjl` signs of what they leave over."""

    def __init__(self, spec: LayerSpec, of: Ints, keep: Keep) -> None:
        super().__init__(spec, 0, of, keep)
        self.project: Transform | None = None
        self.signs: list[Ints] = []
        self.norms: list[Scales] = []
        if spec.keys.qjl:
            self.project = Transform.of(spec.head_dim, spec.seed, SIGNS, spec.rounds)
            keep_tables("sign", self.project, keep)

    def seal(self, r: F32, keep: Keep) -> None:
        y = self.encode(r, self.project is None, keep)
        if self.project is None:
            return
        scale, levels = self.scales[-1], self.levels[-1]
        sy = (scale.su * scale.unit[:, None]) * (1 / self.turn.store)
        error = y - sy[..., None] * levels
        turned = self.project.forward(error)
        norm = np.sqrt(dot16(error, error)) * self.turn.store
        stored = store_scales(self.spec.scale, norm)
        self.signs.append(np.where(turned >= 0, 1, -1))
        self.norms.append(stored)
        keep("key.error", error)
        keep("key.projected", turned)
        keep("key.signs", (turned >= 0).astype(np.uint8))
        keep_scales("key.norm", norm, stored, keep)

    def query(self, ql: F32, keep: Keep) -> None:
        z = self.turn.forward(ql)
        self.qi, qs = integers(z, QUERY_BOUND)
        self.qs = qs * self.turn.read
        keep("query.transformed", z)
        keep("query.codes", self.qi.astype(np.int8))
        keep("query.unit", self.qs)
        if self.project is None:
            return
        z2 = self.project.forward(z)
        self.qi2, self.qs2 = integers(z2, QUERY_BOUND)
        exponent = round(math.log2(1 / (float(self.turn.store) * float(self.turn.read))))
        x = (math.pi / 2) / self.spec.head_dim * (1 + exponent % 2)
        y = -(-exponent // 2) - (3 * exponent + exponent % 2) // 2
        self.constant = const(math.sqrt(x) * 2.0**y)
        keep("query.projected", z2)
        keep("query.projected_codes", self.qi2.astype(np.int8))
        keep("query.projected_unit", self.qs2)
        keep("query.constant", np.array([self.constant]))

    def logits(self, page: int, keep: Keep) -> F32:
        of, scale = self.of, self.scales[page]
        sums = (self.qi[:, None, :] * self.levels[page][of].astype(np.int64)).sum(axis=-1)
        keep("pages.sums", sums.astype(np.int32))
        t: F32 = (sums.astype(np.float32) * scale.su[of]) * (self.qs * scale.unit[of])[:, None]
        if self.project is None:
            return t
        norm = self.norms[page]
        sums = (self.qi2[:, None, :] * self.signs[page][of]).sum(axis=-1)
        keep("pages.sign_sums", sums.astype(np.int32))
        by = (self.qs2 * norm.unit[of]) * self.constant
        signed: F32 = t + (sums.astype(np.float32) * norm.su[of]) * by[:, None]
        return signed


class TurboValues(_Turbo):
    """Rotated codes with the scale of least squares."""

    def __init__(self, spec: LayerSpec, of: Ints, keep: Keep) -> None:
        super().__init__(spec, 1, of, keep)

    def seal(self, r: F32, keep: Keep) -> None:
        self.encode(r, False, keep)

    def output(self, page: int, p: F32, be: F32, keep: Keep) -> F32:
        scale = self.scales[page]
        iw, most = weights(p * scale.su[self.of])
        total = (iw[:, :, None] * self.levels[page][self.of].astype(np.int64)).sum(axis=1)
        keep("pages.value_weights", iw.astype(np.int16))
        keep("pages.value_sums", total.astype(np.int32))
        f = ((most * const(1 / WEIGHT_BOUND)) * scale.unit[self.of]) * be
        added: F32 = total.astype(np.float32) * f[:, None]
        return added

    def back(self, acc: F32) -> F32:
        return self.turn.back(acc) * self.turn.read


def weights(w: F32) -> tuple[Ints, F32]:
    """iw of 14 bits and W, over the last axis; iw is 0 where W is tiny."""
    most = w.max(axis=-1)
    tiny = most < np.float32(2.0**-60)
    iw, _ = integers(w, WEIGHT_BOUND)
    return np.where(tiny[..., None], 0, iw), most


def _groups(size: int) -> Iterator[tuple[int, slice]]:
    """Number and place of each group of tokens or channels."""
    for number, first in enumerate(range(0, size, GROUP)):
        yield number, slice(first, min(first + GROUP, size))


class KiviKeys:
    """Codes by channel, in groups of tokens; the query takes the steps of each group."""

    def __init__(self, spec: LayerSpec, of: Ints) -> None:
        self.spec, self.of = spec, of
        self.coded: list[Coded] = []

    def seal(self, r: F32, keep: Keep) -> None:
        coded = encode(r, round(self.spec.keys.bits), axis=1)
        self.coded.append(coded)
        keep("key.codes", coded.codes.astype(np.uint8))
        keep("key.minima", coded.minima)
        keep("key.steps", coded.steps)

    def query(self, ql: F32, keep: Keep) -> None:
        self.ql = ql

    def logits(self, page: int, keep: Keep) -> F32:
        coded, of = self.coded[page], self.of
        steps, minima = (x.astype(np.float32)[of] for x in (coded.steps, coded.minima))
        qi, qs = integers(self.ql[:, None, :] * steps, KIVI_QUERY_BOUND)
        bias = dot16(self.ql[:, None, :], minima)
        sums = np.empty((len(of), coded.codes.shape[1]), np.int64)
        t = np.empty(sums.shape, np.float32)
        for group, rows in _groups(coded.codes.shape[1]):
            sums[:, rows] = (qi[:, None, group] * coded.codes[of][:, rows]).sum(axis=-1)
            part = sums[:, rows].astype(np.float32) * qs[:, group, None]
            t[:, rows] = part + bias[:, group, None]
        keep("pages.query_codes", qi.astype(np.int16))
        keep("pages.query_unit", qs)
        keep("pages.bias", bias)
        keep("pages.sums", sums.astype(np.int32))
        return t


class KiviValues:
    """Codes by token, in groups of channels."""

    def __init__(self, spec: LayerSpec, of: Ints) -> None:
        self.spec, self.of = spec, of
        self.coded: list[Coded] = []

    def seal(self, r: F32, keep: Keep) -> None:
        coded = encode(r, round(self.spec.values.bits), axis=2)
        self.coded.append(coded)
        keep("value.codes", coded.codes.astype(np.uint8))
        keep("value.minima", coded.minima)
        keep("value.steps", coded.steps)

    def output(self, page: int, p: F32, be: F32, keep: Keep) -> F32:
        coded, of = self.coded[page], self.of
        steps, minima = (x.astype(np.float32)[of] for x in (coded.steps, coded.minima))
        iw, most = weights(p[:, None, :] * steps)
        lows = sum16(p[:, None, :] * minima)
        total = np.empty((len(of), self.spec.head_dim), np.int64)
        x = np.empty(total.shape, np.float32)
        for group, channels in _groups(self.spec.head_dim):
            codes = coded.codes[of][:, :, channels]
            total[:, channels] = (iw[:, group, :, None] * codes).sum(axis=1)
            by = most[:, group, None] * const(1 / WEIGHT_BOUND)
            x[:, channels] = total[:, channels].astype(np.float32) * by + lows[:, group, None]
        keep("pages.value_weights", iw.astype(np.int16))
        keep("pages.value_sums", total.astype(np.int32))
        keep("pages.value_minima", lows)
        keep("pages.value_output", x)
        return x * be[:, None]

    def back(self, acc: F32) -> F32:
        return acc


class _Fp16:
    """Tokens as they are."""

    def __init__(self, of: Ints) -> None:
        self.of = of
        self.pages: list[F32] = []

    def stored(self, name: str, r: F32, keep: Keep) -> None:
        """Keep a page, in full and as halves."""
        self.pages.append(r)
        keep(f"{name}.codes", r.astype(np.float16))


class Fp16Keys(_Fp16):
    """Keys of pages of fp16."""

    def seal(self, r: F32, keep: Keep) -> None:
        self.stored("key", r, keep)

    def query(self, ql: F32, keep: Keep) -> None:
        self.ql = ql

    def logits(self, page: int, keep: Keep) -> F32:
        return dot16(self.ql[:, None, :], self.pages[page][self.of])


class Fp16Values(_Fp16):
    """Values of pages of fp16."""

    def seal(self, r: F32, keep: Keep) -> None:
        self.stored("value", r, keep)

    def output(self, page: int, p: F32, be: F32, keep: Keep) -> F32:
        values = self.pages[page][self.of].transpose(1, 0, 2)
        x = ordered_sum(p.T[:, :, None] * values)
        keep("pages.value_output", x)
        return x * be[:, None]

    def back(self, acc: NDArray[np.float32]) -> F32:
        return acc
