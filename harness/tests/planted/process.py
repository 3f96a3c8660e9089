"""Faults that take their process along."""

from __future__ import annotations

import os
import time

from kvassay.protocol import FloatArray

from .wrapped import Unbroken, WrappedCache


class _Crash(WrappedCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        os.abort()


class Crash(Unbroken):
    """Attention dies by a signal."""

    cache = _Crash


class _Hang(WrappedCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        time.sleep(3600)
        return super().attend(layer, q)


class Hang(Unbroken):
    """Attention never returns."""

    cache = _Hang


class _Raise(WrappedCache):
    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        raise ZeroDivisionError("float division by zero")


class Raise(Unbroken):
    """Attention raises what no protocol names."""

    cache = _Raise
