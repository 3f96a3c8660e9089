"""Faults of the life cycle: drafts, prefixes, sequences, model switches."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kvassay.errors import IdentityError, KvassayError
from kvassay.protocol import Cache, FloatArray, Pool
from kvassay.spec import Spec

from .wrapped import Unbroken, WrappedCache, native


class SharingCache(WrappedCache):
    """Hands drafts and adoption on too."""

    def mark(self, tokens: int) -> None:
        self.inner.mark(tokens)

    def rollback(self, keep: int = 0) -> None:
        self.inner.rollback(keep)

    def commit(self) -> None:
        self.inner.commit()

    def adopt(self, layer: int, donor: Cache, pages: int, k: FloatArray, v: FloatArray) -> None:
        inner = donor.inner if isinstance(donor, WrappedCache) else donor
        self.inner.adopt(layer, inner, pages, k, v)


class _Pool(Pool):
    def __init__(self, inner: Pool, cache: type[WrappedCache]) -> None:
        self.inner, self.cache, self.spec = inner, cache, inner.spec

    def prepare(self) -> Cache:
        return self.cache(self.inner.prepare())

    def restore_bytes(self, data: bytes) -> Cache:
        return self.cache(self.inner.restore_bytes(data))

    @property
    def nbytes(self) -> dict[str, int]:
        return self.inner.nbytes

    def close(self) -> None:
        self.inner.close()


class Sharing(Unbroken):
    """No fault: shares as the native backend does."""

    shares = True
    cache: ClassVar[type[WrappedCache]] = SharingCache

    def pool(self, spec: Spec, limit: int | None = None, threads: int = 1) -> Pool:
        return _Pool(native().pool(spec, limit, threads), self.cache)


class _OneTooMany(SharingCache):
    def rollback(self, keep: int = 0) -> None:
        try:
            self.inner.rollback(keep + 1)
        except KvassayError:
            self.inner.rollback(keep)


class RollbackKeepsOne(Sharing):
    """A draft that is taken back leaves a token."""

    cache = _OneTooMany


class _ShiftedPages(SharingCache):
    def adopt(self, layer: int, donor: Cache, pages: int, k: FloatArray, v: FloatArray) -> None:
        super().adopt(layer, donor, pages, np.roll(k, 1, axis=0), v)


class AdoptsShifted(Sharing):
    """Tokens after an adopted prefix are off by one."""

    cache = _ShiftedPages


class _HalfAppend(SharingCache):
    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        try:
            super().append(layer, k, v)
        except KvassayError:
            self.inner.append(layer, k[:1] * 0, v[:1] * 0)
            raise


class CancelledHalfWay(Sharing):
    """An append that is refused leaves a token."""

    cache = _HalfAppend


class _Forgets(SharingCache):
    def reset(self) -> None:
        self.inner.truncate(min(self.inner.length, self.spec.sinks))


class ResetKeepsSinks(Sharing):
    """A reset keeps the first tokens."""

    cache = _Forgets


class IgnoresAdapter(Sharing):
    """A dump of another adapter is taken for one's own."""

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        try:
            return super().restore_bytes(spec, data, threads)
        except IdentityError as error:
            if error.field == "identity.adapter":
                return self.prepare(spec, threads)
            raise


class _Late(SharingCache):
    def truncate(self, n: int) -> None:
        self.inner.truncate(n if n % 16 else min(n + 1, self.inner.length))


class CutsOneLate(Sharing):
    """At a page boundary a cut leaves a token."""

    cache = _Late
