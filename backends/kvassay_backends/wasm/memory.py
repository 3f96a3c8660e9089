"""Linear memory of an instance: bulk transfers, every address checked on this side.

A module says where its results are; it may lie. Nothing is read or written before offset and size
are known to lie inside the memory as it is now.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .faults import ModuleFault, StaleHandleError

PAGE: Final = 65536


class LinearMemory:
    """The exported memory of one instance."""

    def __init__(self, store: Any, memory: Any) -> None:
        self._store = store
        self._memory = memory
        self._seen: tuple[int, int] | None = None
        self._generation = 0

    @property
    def size(self) -> int:
        """Its present size."""
        return int(self._memory.data_len(self._store))

    @property
    def generation(self) -> int:
        """A number that changes whenever the memory has grown or moved."""
        self._base()
        return self._generation

    def grow(self, pages: int) -> None:
        """Grow from outside. Handles become stale even by 0 pages, as views do in browsers."""
        self._memory.grow(self._store, pages)
        self._seen = None

    def read(self, offset: int, size: int) -> bytes:
        """A copy of `size` bytes."""
        return ctypes.string_at(self._address(offset, size), size)

    def read_array(self, offset: int, out: NDArray[Any]) -> None:
        """Fill a C-contiguous array."""
        source = self._address(offset, out.nbytes)
        ctypes.memmove(out.ctypes.data, source, out.nbytes)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Copy bytes in."""
        self.write_array(offset, np.frombuffer(data, np.uint8))

    def write_array(self, offset: int, array: NDArray[Any]) -> None:
        """Copy a C-contiguous array in."""
        target = self._address(offset, array.nbytes)
        ctypes.memmove(target, array.ctypes.data, array.nbytes)

    def text(self, offset: int, limit: int = 256) -> str:
        """A C string of at most `limit` bytes, less where the memory ends before."""
        self.check(offset, 1)
        data = self.read(offset, min(limit, self.size - offset))
        return data.partition(b"\0")[0].decode("utf-8", "replace")

    def handle(self, offset: int, size: int) -> Handle:
        """A part of the memory to come back to; good until the memory grows."""
        self.check(offset, size)
        return Handle(self, offset, size, self.generation)

    def _base(self) -> int:
        """The address of byte 0, asked anew each time: growth may move it."""
        base = ctypes.cast(self._memory.data_ptr(self._store), ctypes.c_void_p).value or 0
        now = (base, self.size)
        if now != self._seen:
            self._seen = now
            self._generation += 1
        return base

    def _address(self, offset: int, size: int) -> int:
        self.check(offset, size)
        return self._base() + offset

    def check(self, offset: int, size: int) -> None:
        """ModuleFault unless the bytes lie inside the memory."""
        have = self.size
        if offset < 0 or size < 0 or offset + size > have:
            raise ModuleFault(
                f"bytes {offset} .. {offset + size} are outside of linear memory, which has {have}",
                kind="bounds",
            )


class Handle:
    """A part of linear memory. Its bytes are copied out at each call, never kept as a view."""

    def __init__(self, memory: LinearMemory, offset: int, size: int, generation: int) -> None:
        self._memory, self._generation = memory, generation
        self.offset, self.size = offset, size

    def read(self) -> bytes:
        """Its bytes now; StaleHandleError if the memory has grown since the handle was taken."""
        if self._memory.generation != self._generation:
            raise StaleHandleError(
                f"the handle to bytes {self.offset} .. {self.offset + self.size} is stale: linear "
                f"memory has grown since; take it again"
            )
        return self._memory.read(self.offset, self.size)
