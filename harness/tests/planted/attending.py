"""Faults of attention over the right bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvassay.protocol import Cache, FloatArray
from kvassay.spec import Spec

from .rereading import KeepingCache, TwinCache
from .wrapped import Bounded, Unbroken, WrappedCache, native


def _one_ulp(x: FloatArray) -> FloatArray:
    """The same with its first number moved to the next one."""
    out = x.copy()
    out.flat[0] = np.nextafter(out.flat[0], np.float32(np.inf))
    return out


class _SwappedHeads(WrappedCache):
    """Query head h reads KV head h mod kv_heads: right for MHA and MQA."""

    def _order(self) -> Any:
        heads = np.arange(self.spec.query_heads)
        return heads.reshape(-1, self.spec.kv_heads).T.ravel()

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        out = np.empty_like(q)
        order = self._order()
        out[..., order, :] = super().attend(layer, q[..., order, :])
        return out

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        order = self._order()
        found = super().scores(layer, q[order])
        out = np.empty_like(found)
        out[order] = found
        return out


class BoundedSwappedHeads(Bounded, Unbroken):
    """Query heads are dealt out to KV heads in turn, not in groups."""

    cache = _SwappedHeads


class _Ulp(WrappedCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        out = super().attend(layer, q)
        return _one_ulp(out) if q.ndim == 3 else out


class OneUlp(Unbroken):
    """The path for several queries differs from the contract in the last bit of one number."""

    cache = _Ulp


class _ManyThreads(WrappedCache):
    """Another order of summation, wherever there is more than one thread."""

    threads = 1

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        out = super().attend(layer, q)
        return _one_ulp(out) if self.threads > 1 else out


class ThreadsChangeABit(Unbroken):
    """The result depends on the number of threads."""

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        cache = _ManyThreads(native().prepare(spec, threads))
        cache.threads = threads
        return cache


class _HalfTheChannels(WrappedCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        out = super().attend(layer, q)
        if q.ndim == 2:
            out[:, self.spec.head_dim // 2 :] = 0
        return out


class BoundedHalfTheChannels(Bounded, Unbroken):
    """The path for one query consumes half of each value; that for several, all of it."""

    cache = _HalfTheChannels


class _Saturating(WrappedCache):
    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        found = super().scores(layer, q)
        return np.where(np.isfinite(found), np.clip(found, -32768, 32767), found)


class BoundedSaturating(Bounded, Unbroken):
    """Scores saturate like int16."""

    cache = _Saturating


class _SecondCall(WrappedCache):
    def start(self) -> None:
        self._called = False

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        out = super().attend(layer, q)
        again, self._called = self._called, True
        return out * np.float32(1.001) if again else out


class BoundedSecondCall(Bounded, Unbroken):
    """The first call is right; later ones start from what it left in the scratch."""

    cache = _SecondCall


class _FewQueryBits(WrappedCache):
    """Queries of 4 bits; 7 are what the codebooks allow."""

    def _coarse(self, q: FloatArray) -> FloatArray:
        step = np.abs(q).max(axis=-1, keepdims=True) / np.float32(7)
        rounded: FloatArray = np.rint(q / np.maximum(step, np.float32(1e-30))) * step
        return np.clip(rounded, -65504, 65504).astype(np.float32)

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        return super().attend(layer, self._coarse(q) if np.isfinite(q).all() else q)

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        return super().scores(layer, self._coarse(q) if np.isfinite(q).all() else q)


class BoundedFewQueryBits(Bounded, Unbroken):
    """Queries are rounded far more coarsely than the codes deserve."""

    cache = _FewQueryBits


class TighterThanItIs(Unbroken):
    """Declares an error of 1e-9 and has one of 1e-3."""

    exact = False
    bound = 1e-9
    cache = _SecondCall


class _Window(TwinCache):
    def read_as(self) -> dict[str, Any]:
        return {"window": self.spec.window // 2}


class BoundedHalfWindow(Bounded, Unbroken):
    """Attends over codes where the window promises fp16 tokens."""

    cache = _Window


class _Span(TwinCache):
    def read_as(self) -> dict[str, Any]:
        return {"span": self.spec.span and self.spec.span + 1}


class BoundedSpanOffByOne(Bounded, Unbroken):
    """Attends to one token more than the span."""

    cache = _Span


class _Exchanged(KeepingCache):
    """Keys are read where values are, and the reverse."""

    def reader(self) -> Cache:
        cache = native().prepare(self.spec)
        for layer, (k, v) in enumerate(self.kept):
            cache.append(layer, v, k)
        return cache


class BoundedKeysForValues(Bounded, Unbroken):
    """The readers of keys and of values are mixed up."""

    cache = _Exchanged


class _PreviousLayer(WrappedCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        other = layer - 1
        wrong = other in range(self.spec.layers) and self.lengths[other] == self.lengths[layer]
        return super().attend(other if wrong else layer, q)


class BoundedPreviousLayer(Bounded, Unbroken):
    """Attention reads the layer before, where that has as many tokens."""

    cache = _PreviousLayer


class ForeignPages(Unbroken):
    """Reads pages that came in through a dump a bit differently from its own."""

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        return _AnyUlp(native().restore_bytes(spec, data, threads))


class _AnyUlp(WrappedCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        return _one_ulp(super().attend(layer, q))
