"""Faults of memory: what is held beside the bill, or for too long."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kvassay.protocol import FloatArray
from kvassay_suites.oracle import decode_cache

from .wrapped import Unbroken, WrappedCache


class _Shadow(WrappedCache):
    def start(self) -> None:
        self._shadow: tuple[NDArray[np.float64], ...] = ()

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        out = super().attend(layer, q)
        if not self._shadow:
            states = decode_cache(self.inner.dump())
            self._shadow = tuple(x for state in states for x in (state.k, state.v))
        return out


class DecodedShadow(Unbroken):
    """The first attention leaves a decoded copy of everything behind."""

    cache = _Shadow


class _FullCopy(WrappedCache):
    def start(self) -> None:
        self._copies: list[FloatArray] = []

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        super().append(layer, k, v)
        self._copies += [k.copy(), v.copy()]


class UnbilledCopy(Unbroken):
    """Keeps every token in float32 as well, and bills the codes alone."""

    cache = _FullCopy


class _HalfBilled(WrappedCache):
    @property
    def nbytes(self) -> dict[str, int]:
        held = super().nbytes
        return {**held, "codes": held["codes"] // 2, "residual": held["residual"] // 2}


class BillsHalf(Unbroken):
    """Holds 16 bits where it bills 8."""

    cache = _HalfBilled


class _Scratch(WrappedCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        tokens, heads, d = self.inner.lengths[layer], self.spec.kv_heads, self.spec.head_dim
        decoded = np.ones((2, tokens, heads, d), np.float32)
        out = super().attend(layer, q)
        del decoded
        return out


class ScratchGrows(Unbroken):
    """Every step decodes the whole context into scratch, and frees it again."""

    cache = _Scratch


class _Staging(WrappedCache):
    """The copies are billed, so that nothing but the peak is wrong."""

    def start(self) -> None:
        self._staging: list[FloatArray] = []

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        super().append(layer, k, v)
        self._staging += [k.copy(), v.copy()]

    @property
    def nbytes(self) -> dict[str, int]:
        held = super().nbytes
        return {**held, "staging": held["staging"] + sum(x.nbytes for x in self._staging)}

    def close(self) -> None:
        self._staging = []
        super().close()


class StagingNeverShrinks(Unbroken):
    """Full-precision input stays in staging, billed, for the life of the cache."""

    cache = _Staging


class _Leak(WrappedCache):
    left: ClassVar[list[FloatArray]] = []

    def close(self) -> None:
        self.left.append(np.ones(1 << 15, np.float32))
        super().close()


class KeptAfterClose(Unbroken):
    """Every closed cache leaves a buffer in the process."""

    cache = _Leak
