"""Planted faults in what native code does around the buffers that it is given."""

from __future__ import annotations

import ctypes

from kvassay.backend.fences import active
from kvassay.protocol import FloatArray
from planted.wrapped import Unbroken, WrappedCache


class _Foreign(WrappedCache):
    """Outputs come from native code that is given a buffer for them."""

    def spoil(self, end: int) -> None:
        """What that code does at the address behind the buffer."""

    def attend(self, layer: int, q: FloatArray) -> FloatArray:
        out = super().attend(layer, q)
        fences = active()
        if fences is None:
            return out
        room = fences.take(out.nbytes, "out", out.itemsize)
        room.view(out.dtype)[:] = out.reshape(-1)
        fences.watch("attend", self.spoil, room.ctypes.data + room.size)
        return room.view(out.dtype).reshape(out.shape)


class _WritesBehind(_Foreign):
    def spoil(self, end: int) -> None:
        ctypes.memset(end, 0, 1)


class WritesBehind(Unbroken):
    """Changes the byte behind its output."""

    cache = _WritesBehind


class _ReadsBehind(_Foreign):
    def spoil(self, end: int) -> None:
        ctypes.string_at(end, 1)


class ReadsBehind(Unbroken):
    """Reads the byte behind its output."""

    cache = _ReadsBehind
