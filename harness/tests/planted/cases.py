"""One backend a fault of docs/faults.md: the fault planted in an otherwise sound backend.

`FAULTY` says which case must turn red for which class. Those that harness/tests/planted has already
are named there.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from kvassay.errors import IdentityError, PageError, TruncateError
from kvassay.protocol import Cache, Counters, FloatArray
from kvassay.spec import Identity, Spec
from planted.wrapped import Unbroken, WrappedCache, native


class _Keys(WrappedCache):
    """Changes keys on their way in."""

    def change(self, k: FloatArray) -> FloatArray:
        raise NotImplementedError

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        good = isinstance(k, np.ndarray) and k.dtype == np.float32 and k.ndim == 3
        super().append(layer, self.change(k) if good else k, v)


class _OutputOf(WrappedCache):
    """Changes outputs on their way out."""

    def change(self, out: FloatArray) -> FloatArray:
        raise NotImplementedError

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        return self.change(super().attend(layer, q))


class OneRound(Unbroken):
    """Mixes once where two rounds are asked for."""

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        return super().prepare(replace(spec, rounds=1), threads)


class _Nearly(_OutputOf):
    def change(self, out: FloatArray) -> FloatArray:
        return out * np.float32(1.0001)


class ReadsOtherwise(Unbroken):
    """A cache that was restored answers otherwise than the one that was dumped."""

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        return _Nearly(native().restore_bytes(spec, data, threads))


class _ManyQueries(WrappedCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        out = super().attend(layer, q)
        if out.ndim == 3 and len(out) > 1:
            out[0] = out[1]
        return out


class ManyQueries(Unbroken):
    """Several queries at once see what one alone would not."""

    cache = _ManyQueries


class _Louder(_Keys):
    def change(self, k: FloatArray) -> FloatArray:
        return k * np.float32(1.01)


class ThreadsMatter(Unbroken):
    """More threads, other bytes."""

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        inner = native().prepare(spec, threads)
        return _Louder(inner) if threads > 1 else WrappedCache(inner)


class _HalfElements(_OutputOf):
    def change(self, out: FloatArray) -> FloatArray:
        if out.ndim == 2:
            out.reshape(len(out), -1, 8)[..., 4:] = 0
        return out


class HalfElements(Unbroken):
    """The kernel for one query consumes 4 of every 8 value elements."""

    cache = _HalfElements


class _Swapped(WrappedCache):
    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        super().append(layer, v, k)


class Swapped(Unbroken):
    """Keys are stored as values and values as keys."""

    cache = _Swapped


class _Narrow(_Keys):
    def change(self, k: FloatArray) -> FloatArray:
        return np.clip(k, -1, 1)


class NarrowCodes(Unbroken):
    """The outer codes never occur, and a norm is not taken out before they are chosen."""

    cache = _Narrow


class _NoTail(_Keys):
    def change(self, k: FloatArray) -> FloatArray:
        k = k.copy()
        k[..., -8:] = 0
        return k


class TailDropped(Unbroken):
    """The last half tile of channels is never written."""

    cache = _NoTail


class _LongPages(WrappedCache):
    def pages(self, layer: int) -> list[bytes]:
        return [page + bytes(64) for page in super().pages(layer)]


class LongPages(Unbroken):
    """Pages are longer than they say."""

    cache = _LongPages


class _OtherVariant(WrappedCache):
    @property
    def counters(self) -> Counters:
        return replace(super().counters, variants_ran=("avx2",))


class OtherVariant(Unbroken):
    """Another variant runs than the one that was asked for."""

    cache = _OtherVariant


class _Half(_Keys):
    def change(self, k: FloatArray) -> FloatArray:
        return k * np.float32(0.5)


class Undocumented(Unbroken):
    """Stores half of each key, and doubles nothing: the documents do not say so."""

    cache = _Half


class _NearZero(WrappedCache):
    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        return super().scores(layer, q) + np.float32(1e-9)


class NearZero(Unbroken):
    """A zero vector scores nearly 0."""

    cache = _NearZero


class _Residue(_OutputOf):
    def start(self) -> None:
        self._used = False

    def truncate(self, n: int) -> None:
        super().truncate(n)
        self._used = True

    def change(self, out: FloatArray) -> FloatArray:
        return out + np.float32(1e-3) if self._used else out


class Residue(Unbroken):
    """What a truncation left in spare slots shows in later outputs."""

    cache = _Residue


class LoadsAnything(Unbroken):
    """Damaged pages are loaded as if they were empty."""

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        try:
            return super().restore_bytes(spec, data, threads)
        except PageError:
            return self.prepare(spec, threads)


class _Flushed(_Keys):
    def change(self, k: FloatArray) -> FloatArray:
        return np.where(np.abs(k) < 2.0**-14, np.float32(0), k).astype(np.float32)


class FlushedHalves(Unbroken):
    """The conversion to fp16 has no subnormal numbers."""

    cache = _Flushed


class FlushToZero(Unbroken):
    """Loading switches the process to flush-to-zero (glibc on x86-64)."""

    def __init__(self) -> None:
        super().__init__()
        libm = ctypes.CDLL("libm.so.6")
        environment = (ctypes.c_uint32 * 8)()  # the last word is MXCSR
        libm.fegetenv(environment)
        environment[7] |= 1 << 15 | 1 << 6
        libm.fesetenv(environment)


class _Modulo(WrappedCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        kv_heads = self.spec.kv_heads
        order = np.argsort(np.arange(self.spec.query_heads) % kv_heads, kind="stable")
        out = np.empty_like(q)
        out[..., order, :] = super().attend(layer, np.ascontiguousarray(q[..., order, :]))
        return out


class HeadsModulo(Unbroken):
    """Query head h reads KV head h mod Hkv."""

    cache = _Modulo


class _CrossTalk(WrappedCache):
    last: ClassVar[dict[tuple[int, ...], FloatArray]] = {}

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        before = self.last.get(k.shape)
        self.last[k.shape] = k.copy()
        super().append(layer, k, v if before is None else v + np.float32(1e-2) * before)


class CrossTalk(Unbroken):
    """All caches share one staging buffer."""

    cache = _CrossTalk


def _as_fp16(spec: Spec) -> Spec:
    plain: dict[str, Any] = {"keys": "fp16", "values": "fp16"}
    return replace(spec, **plain, key_centre="none", value_centre="none")


class QuantizesNothing(Unbroken):
    """Every codec is fp16 by another name."""

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        return super().prepare(_as_fp16(spec), threads)


class SpanIgnored(Unbroken):
    """Attends to everything that was ever appended."""

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        return super().prepare(replace(spec, span=None), threads)


class _CutsSilently(WrappedCache):
    def truncate(self, n: int) -> None:
        try:
            super().truncate(n)
        except TruncateError as error:
            super().truncate(min(error.allowed))


class CutsSilently(Unbroken):
    """A truncation that cannot be made is made somewhere else."""

    cache = _CutsSilently


class _CodesUnread(WrappedCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        return super().attend(layer, q) * 0 + q


class CodesUnread(Unbroken):
    """Outputs that do not come from the codes."""

    cache = _CodesUnread


class CentringIgnored(Unbroken):
    """Keys are never centred."""

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        return super().prepare(replace(spec, key_centre="none"), threads)


class _Shifted(WrappedCache):
    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        return super().scores(layer, q) * np.float32(0.99 if self.spec.span else 1)


class Shifts(Unbroken):
    """Sliding rotates the codes that are left once more."""

    cache = _Shifted


class LoadsForeign(Unbroken):
    """Another cache's dump is loaded as if it were empty."""

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        try:
            return super().restore_bytes(spec, data, threads)
        except IdentityError:
            return self.prepare(spec, threads)


class NameOnly(Unbroken):
    """Pages know the name of their model and nothing else of their owner."""

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        known = Identity(model=spec.identity.model) if spec.identity else None
        return super().prepare(replace(spec, identity=known), threads)


class _KeysOnly(WrappedCache):
    @property
    def nbytes(self) -> dict[str, int]:
        held = super().nbytes
        return {**held, "scales": 0, "codes": held["codes"] // 2, "residual": held["residual"] // 2}


class BillsKeysOnly(Unbroken):
    """Bills codes of keys alone, and no scales."""

    cache = _KeysOnly


class _OneBuffer(WrappedCache):
    def start(self) -> None:
        self._out: dict[tuple[int, ...], FloatArray] = {}

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        out = super().attend(layer, q)
        buffer = self._out.setdefault(out.shape, np.empty_like(out))
        buffer[...] = out
        return buffer


class StaleViews(Unbroken):
    """Outputs are views of memory that the next call writes."""

    cache = _OneBuffer


class _AnswersEmpty(WrappedCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        return np.zeros_like(q) if self.lengths[layer] == 0 else super().attend(layer, q)


class AnswersEmpty(Unbroken):
    """An empty cache attends to nothing, and says so with zeros."""

    cache = _AnswersEmpty


class _AnyShape(WrappedCache):
    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        shape = (-1, self.spec.kv_heads, self.spec.head_dim)
        rows = [np.asarray(x, np.float32) for x in (k, v)]
        with suppress(ValueError):  # what does not fit, the inner cache may refuse
            rows = [x.reshape(shape) for x in rows]
        super().append(layer, *rows)


class AnyShape(Unbroken):
    """What has as many numbers as some tokens would is taken for those tokens."""

    cache = _AnyShape


class _ScalesInPlace(WrappedCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        out = super().attend(layer, q)
        q *= np.float32(0.125)
        return out


class ScalesInPlace(Unbroken):
    """The softmax scale is multiplied into the caller's query."""

    cache = _ScalesInPlace


FAULTY: Final = {
    1: "planted.state:BoundedOneByOne",
    2: "planted.cases:OneRound",
    3: "planted.cases:ReadsOtherwise",
    4: "planted.cases:ManyQueries",
    5: "planted.cases:ThreadsMatter",
    6: "planted.cases:HalfElements",
    7: "planted.cases:Swapped",
    8: "planted.cases:NarrowCodes",
    9: "planted.cases:TailDropped",
    10: "planted.cases:LongPages",
    11: "planted.cases:OtherVariant",
    12: "planted.cases:Undocumented",
    13: "planted.state:BoundedSwallowsNaN",
    14: "planted.cases:NearZero",
    15: "planted.state:BoundedSwallowsNaN",
    16: "planted.cases:NarrowCodes",
    17: "planted.cases:Residue",
    18: "planted.state:BoundedSwallowsNaN",
    19: "planted.cases:LoadsAnything",
    20: "planted.cases:FlushedHalves",
    21: "planted.cases:CentringIgnored",
    22: "planted.attending:BoundedSaturating",
    25: "planted.cases:FlushToZero",
    27: "planted.state:BoundedStridesIgnored",
    28: "planted.cases:HeadsModulo",
    29: "planted.cases:CrossTalk",
    30: "planted.cases:QuantizesNothing",
    31: "planted.cases:SpanIgnored",
    32: "planted.cases:CutsSilently",
    33: "planted.state:BoundedFrontierStays",
    34: "planted.state:BoundedSharedFork",
    35: "planted.cases:Shifts",
    36: "planted.cases:LoadsForeign",
    37: "planted.cases:NameOnly",
    38: "planted.cases:LoadsAnything",
    39: "planted.cases:LoadsAnything",
    40: "planted.cases:CodesUnread",
    41: "planted.holding:StagingNeverShrinks",
    42: "planted.cases:BillsKeysOnly",
    44: "planted.cases:StaleViews",
    45: "planted.cases:AnswersEmpty",
    46: "planted.cases:AnyShape",
    47: "planted.cases:ScalesInPlace",
    48: "planted.attending:BoundedPreviousLayer",
    49: "planted.attending:BoundedHalfWindow",
    50: "planted.bounds:WritesBehind",
    51: "planted.bounds:ReadsBehind",
}
