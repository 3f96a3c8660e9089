"""Caches that attend over something else than what they store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from kvassay.page.dump import pack_dump, parse_dump
from kvassay.page.layout import PageLayout, with_crc
from kvassay.protocol import Cache, FloatArray
from kvassay.spec import LayerSpec, Spec
from kvassay_suites.oracle import decode_cache

from .wrapped import WrappedCache, native


class RereadingCache(WrappedCache):
    """Attends over another cache, made anew after every change of this one."""

    def start(self) -> None:
        self._reader: Cache | None = None

    def reader(self) -> Cache:
        """A new cache of the same tokens: like this one, but for the fault."""
        raise NotImplementedError

    def _read(self, layer: int) -> Cache:
        """The cache that is attended; the inner one where it must refuse for want of tokens."""
        if layer not in range(self.spec.layers) or not self.inner.lengths[layer]:
            return self.inner
        if self._reader is None:
            self._reader = self.reader()
        return self._reader

    def forget(self) -> None:
        """Drop the cache that is attended; the next read makes another."""
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        super().append(layer, k, v)
        self.forget()

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        return self._read(layer).attend(layer, q)

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        return self._read(layer).scores(layer, q)

    def truncate(self, n: int) -> None:
        super().truncate(n)
        self.forget()

    def reset(self) -> None:
        self.forget()
        super().reset()

    def close(self) -> None:
        self.forget()
        super().close()


class EditedCache(RereadingCache):
    """Attends over pages that `edit` has changed. With `stores` they are what it shows, too."""

    stores: ClassVar[bool] = False

    def edit(self, page: bytes, spec: LayerSpec) -> bytes:
        """The page with the fault; what `stores` must change nothing when applied again."""
        raise NotImplementedError

    def read_as(self) -> Spec:
        """The spec under which the pages are read."""
        return self.spec

    def reader(self) -> Cache:
        return native().restore_bytes(self.read_as(), self._edited(self.read_as()))

    def pages(self, layer: int) -> list[bytes]:
        found = super().pages(layer)
        return self._edit(found, self.spec.layer(layer)) if self.stores else found

    def dump_bytes(self) -> bytes:
        return self._edited(self.spec) if self.stores else super().dump_bytes()

    def _edited(self, spec: Spec) -> bytes:
        layers = parse_dump(self.spec, self.inner.dump())
        changed = [
            replace(layer, pages=self._edit(layer.pages, layer_spec))
            for layer, layer_spec in zip(layers, self.spec.layer_specs, strict=True)
        ]
        return pack_dump(spec, changed)

    def _edit(self, pages: Sequence[bytes], spec: LayerSpec) -> list[bytes]:
        return [self.edit(page, spec) for page in pages]


class KeepingCache(RereadingCache):
    """Keeps all tokens beside the inner cache, as they came: (k, v) for each layer."""

    def start(self) -> None:
        super().start()
        self.kept = [_decoded(self.inner, layer) for layer in range(self.spec.layers)]

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        super().append(layer, k, v)
        old = self.kept[layer]
        self.kept[layer] = (np.concatenate([old[0], k]), np.concatenate([old[1], v]))

    def truncate(self, n: int) -> None:
        super().truncate(n)
        self.kept = [(k[:n], v[:n]) for k, v in self.kept]

    def fork(self) -> Cache:
        other = type(self)(self.inner.fork())
        other.kept = list(self.kept)
        return other


class TwinCache(KeepingCache):
    """Attends over a cache of the same tokens under another spec."""

    def read_as(self) -> dict[str, Any]:
        """Fields of the spec that differ."""
        raise NotImplementedError

    def reader(self) -> Cache:
        spec = Spec.from_dict({**self.spec.to_dict(), "layer_overrides": {}, **self.read_as()})
        twin = native().prepare(spec)
        for layer, (k, v) in enumerate(self.kept):
            twin.append(layer, k, v)
        return twin


def _decoded(cache: Cache, layer: int) -> tuple[FloatArray, FloatArray]:
    """Tokens of a cache that was restored or forked, as its dump says; retired ones are 0."""
    if not cache.lengths[layer]:
        empty = np.zeros((0, cache.spec.kv_heads, cache.spec.head_dim), np.float32)
        return empty, empty
    state = decode_cache(cache.dump())[layer]
    k, v = (np.nan_to_num(rows).astype(np.float32) for rows in (state.k, state.v))
    return k, v


def with_scaled(page: bytes, spec: LayerSpec, **factors: float) -> bytes:
    """The page with these streams of real numbers multiplied, its CRC repaired.

    Which of them a page has depends on codecs and kind of scale; others are passed over.
    """
    layout, out = PageLayout(spec), bytearray(page)
    for name, factor in factors.items():
        if name in layout and layout[name].dtype.kind == "f":
            stream = layout[name]
            numbers = stream.read(page).astype(np.float64) * factor
            changed = numbers.astype(stream.dtype).tobytes()
            out[stream.offset : stream.offset + stream.size] = changed
    return with_crc(bytes(out))
