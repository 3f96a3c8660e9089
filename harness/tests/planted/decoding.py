"""Faults of codecs: what is stored, and how it is read back."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from kvassay.page.layout import PageLayout, with_crc
from kvassay.page.tiles import pack_keys, pack_values, unpack_keys, unpack_values
from kvassay.protocol import Cache, FloatArray
from kvassay.spec import LayerSpec, Spec
from kvassay_suites.oracle import attend64, scores64

from .rereading import EditedCache, KeepingCache, TwinCache, with_scaled
from .wrapped import Bounded, Unbroken, native

#: Where a page's header keeps the seed (docs/page-format.md).
_SEED: Final = slice(32, 40)


class _Shrunk(EditedCache):
    def edit(self, page: bytes, spec: LayerSpec) -> bytes:
        kinds = ("scales", "maxima", "steps", "minima")
        return with_scaled(page, spec, **{f"{s}_{k}": 0.4 for s in ("key", "value") for k in kinds})


class ShrunkDecoder(Unbroken):
    """Everything that is decoded is 0.4 of what it should be."""

    cache = _Shrunk


class BoundedShrunkDecoder(Bounded, ShrunkDecoder):
    """The same, without a promise of bits."""


class _Biased(EditedCache):
    """Lloyd-Max distortion of a codec is what its least-squares scale falls short by."""

    _SHORT: ClassVar = {2.0: 0.117, 2.5: 0.076, 3.0: 0.0345, 3.5: 0.022, 4.0: 0.0095}

    def edit(self, page: bytes, spec: LayerSpec) -> bytes:
        if spec.keys.family != "turbo":
            return page
        factor = 1 - self._SHORT[spec.keys.bits]
        return with_scaled(page, spec, key_scales=factor, key_maxima=factor)


class BoundedBiasedKeys(Bounded, Unbroken):
    """Keys have the scale of least error instead of the unbiased one: every logit shrinks."""

    cache = _Biased


class _CoarseScales(EditedCache):
    stores = True

    def edit(self, page: bytes, spec: LayerSpec) -> bytes:
        """Cut to 8 bits of mantissa."""
        layout, out = PageLayout(spec), bytearray(page)
        for name in ("key_maxima", "value_maxima"):
            if name in layout:
                stream = layout[name]
                bits = stream.read(page).view("<u4") & np.uint32(0xFFFF0000)
                out[stream.offset : stream.offset + stream.size] = bits.tobytes()
        return with_crc(bytes(out))


class BoundedCoarseScales(Bounded, Unbroken):
    """Scales go through bfloat16 on their way into the page."""

    cache = _CoarseScales


class _TailDropped(EditedCache):
    """The last code of every head is 0: the packer stops one early."""

    def edit(self, page: bytes, spec: LayerSpec) -> bytes:
        layout, out = PageLayout(spec), bytearray(page)
        for name, codec, unpack, pack in (
            ("key_codes", spec.keys, unpack_keys, pack_keys),
            ("value_codes", spec.values, unpack_values, pack_values),
        ):
            stream, splits = layout[name], codec.splits(spec.head_dim)
            if codec.family == "fp16":
                codes = stream.read(page).copy()
                codes[:, -1, -1] = 0
                packed = codes.tobytes()
            else:
                codes = unpack(stream.read(page), splits, spec.page_tokens)
                codes[:, -1, -1] = 0
                packed = pack(codes, splits).tobytes()
            out[stream.offset : stream.offset + stream.size] = packed
        return with_crc(bytes(out))


class _TailNotStored(_TailDropped):
    stores = True


class TailNotStored(Unbroken):
    """The last code of a page is never written."""

    cache = _TailNotStored


class TailNotRead(Unbroken):
    """Pages are right, but attention reads the last code of each as 0."""

    cache = _TailDropped


class _OtherSeed(EditedCache):
    def read_as(self) -> Spec:
        return replace(self.spec, seed=self.spec.seed ^ 1)

    def edit(self, page: bytes, spec: LayerSpec) -> bytes:
        if not spec.rotated:
            return page
        out = bytearray(page)
        out[_SEED] = struct.pack("<Q", spec.seed ^ 1)
        return with_crc(bytes(out))


class BoundedTwoBases(Bounded, Unbroken):
    """Pages are written with one rotation and read with another."""

    cache = _OtherSeed


class _Fp32(KeepingCache):
    def _attended(self) -> tuple[float, int, int]:
        spec = self.spec
        return spec.effective_softmax_scale, spec.span or 0, spec.sinks

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        self.inner.attend(layer, q)  # for its refusals
        k, v = (rows.astype(np.float64) for rows in self.kept[layer])
        rows = q if q.ndim == 3 else q[np.newaxis]
        first = len(k) - len(rows) + 1
        out = [attend64(k, v, row, *self._attended(), first + i) for i, row in enumerate(rows)]
        return np.asarray(out, np.float32).reshape(q.shape)

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        self.inner.scores(layer, q)
        k = self.kept[layer][0].astype(np.float64)
        return scores64(k, q, *self._attended(), len(k)).astype(np.float32)


class BoundedFp32Store(Bounded, Unbroken):
    """Bills the codes that its spec names, and attends over a float32 store that it does not."""

    cache = _Fp32


class _NeverRuns(TwinCache):
    """What was appended comes back after a restore through a store beside the dump."""

    _beside: ClassVar[dict[tuple[str, tuple[int, ...]], list[tuple[FloatArray, FloatArray]]]] = {}

    def start(self) -> None:
        super().start()
        self.kept = self._beside.get((self.spec.identity_text, self.lengths), self.kept)

    def read_as(self) -> dict[str, Any]:
        plain = {"keys": "fp16", "values": "fp16", "key_centre": "none", "value_centre": "none"}
        return {**plain, "page_tokens": 1024}

    def dump_bytes(self) -> bytes:
        self._beside[self.spec.identity_text, self.lengths] = list(self.kept)
        return super().dump_bytes()


class BoundedCodecNeverRuns(Bounded, Unbroken):
    """The codec is named, its pages are written, and fp16 tokens are attended instead."""

    cache = _NeverRuns


class BoundedCoarseCodes(Bounded, Unbroken):
    """Whatever quantized spec it is given, it stores 2 bits a number, of every token."""

    _FIELDS: ClassVar = {"keys": "turbo:2", "values": "turbo:2", "window": 0, "sinks": 0}

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        cache = self.cache(native().prepare(self._coarse(spec), threads))
        cache.spec = spec
        return cache

    def _coarse(self, spec: Spec) -> Spec:
        plain = {"key_centre": "none", "value_centre": "none", "layer_overrides": {}}
        quantized = spec.keys != "fp16"
        return Spec.from_dict({**spec.to_dict(), **plain, **self._FIELDS}) if quantized else spec
