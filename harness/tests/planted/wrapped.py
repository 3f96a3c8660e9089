"""The unbroken wrapper that every fault starts from, and its control."""

from __future__ import annotations

from functools import cache
from typing import ClassVar

import kvassay
from kvassay.protocol import Backend, Cache, Counters, FloatArray, Support
from kvassay.spec import Spec

#: A declared bound that any finite output keeps.
WIDE: float = 1e6


@cache
def native() -> Backend:
    """What all of them wrap: the portable variant, which runs wherever the library was built."""
    return kvassay.load("native", "scalar")


class WrappedCache(Cache):
    """Hands every call to a native cache."""

    def __init__(self, inner: Cache) -> None:
        self.inner = inner
        self.spec = inner.spec
        self.start()

    def start(self) -> None:
        """Set up what a fault keeps beside the inner cache; called by fork and reset too."""

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        self.inner.append(layer, k, v)

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        return self.inner.attend(layer, q)

    def scores(self, layer: int, q: FloatArray) -> FloatArray:
        return self.inner.scores(layer, q)

    @property
    def lengths(self) -> tuple[int, ...]:
        return self.inner.lengths

    @property
    def nbytes(self) -> dict[str, int]:
        return self.inner.nbytes

    @property
    def counters(self) -> Counters:
        return self.inner.counters

    def pages(self, layer: int) -> list[bytes]:
        return self.inner.pages(layer)

    def truncate(self, n: int) -> None:
        self.inner.truncate(n)

    def fork(self) -> Cache:
        return type(self)(self.inner.fork())

    def reset(self) -> None:
        self.inner.reset()
        self.start()

    def close(self) -> None:
        self.inner.close()

    def dump_bytes(self) -> bytes:
        return self.inner.dump_bytes()


class Unbroken(Backend):
    """No fault: it must pass whatever a broken one is rejected by."""

    name = "broken"
    variant = "scalar"
    cache: ClassVar[type[WrappedCache]] = WrappedCache

    def __init__(self) -> None:
        self.build_id = native().build_id

    def supports(self, spec: Spec) -> Support:
        return native().supports(spec)

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        return self.cache(native().prepare(spec, threads))

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        return self.cache(native().restore_bytes(spec, data, threads))


class Bounded(Unbroken):
    """Mixed into a fault: it promises no bits and declares a bound that anything keeps."""

    exact = False
    bound = WIDE


class BoundedUnbroken(Bounded):
    """The control of those."""
