"""The memory that a library is given: plain, or fenced where writes outside are looked for."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kvassay.backend.fences import active

Bytes = NDArray[np.uint8]

#: What plans and scratch must be aligned to, pages, and what an allocator gives.
LINE: Final = 64
PAGE_ALIGNMENT: Final = 16
_STRUCT_ALIGNMENT: Final = 8

#: Allocators outlive the caches that were made with them, whatever is collected first.
_kept: Final[list[Any]] = []


def empty(shape: tuple[int, ...], dtype: DTypeLike, what: str) -> NDArray[Any]:
    """An array for the library to fill."""
    fences = active()
    if fences is None:
        return np.empty(shape, dtype)
    kind = np.dtype(dtype)
    return fences.take(prod(shape) * kind.itemsize, what, kind.itemsize).view(kind).reshape(shape)


def aligned(size: int, what: str) -> Bytes:
    """Bytes for the library to work in, aligned to 64."""
    fences = active()
    if fences is not None:
        return fences.take(size, what, LINE)
    room = np.zeros(size + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    return room[start : start + size]


def zeroed(size: int, what: str) -> Bytes | bytearray:
    """Bytes of a page or a dump for the library to fill."""
    fences = active()
    return bytearray(size) if fences is None else fences.take(size, what, PAGE_ALIGNMENT)


def given(data: Any, what: str, alignment: int = 0) -> Any:
    """`data`, an array or bytes, for the library to read; alignment 0 is that of its numbers."""
    fences = active()
    if fences is None:
        return data
    array = np.ascontiguousarray(np.frombuffer(data, np.uint8) if _is_bytes(data) else data)
    room = fences.give(array.reshape(-1).view(np.uint8), what, alignment or array.itemsize)
    return room.view(array.dtype).reshape(array.shape)


def _is_bytes(data: Any) -> bool:
    return isinstance(data, (bytes, bytearray, memoryview))


def read_only(room: Bytes) -> None:
    """What was given to be filled is to be read only from now on."""
    fences = active()
    if fences is not None:
        fences.freeze(room)


def new(ffi: Any, kind: str, init: Any = None, constant: bool = False) -> Any:
    """A new struct or number for the library, as `ffi.new` makes it; a constant is to be read."""
    fences = active()
    made = ffi.new(kind, init)
    if fences is None:
        return made
    data = np.frombuffer(ffi.buffer(made), np.uint8)
    room = fences.take(data.size, kind, _STRUCT_ALIGNMENT)
    room[:] = data
    if constant:
        fences.freeze(room)
    return ffi.from_buffer(kind, room)


def allocator(ffi: Any) -> Any:
    """A kv_allocator that fences what a cache asks for; NULL where nobody looks."""
    fences = active()
    if fences is None:
        return ffi.NULL

    def allocate(_context: Any, size: int) -> Any:
        try:
            address = fences.hold(size, "memory of the cache", LINE)
        except (OSError, OverflowError, ValueError):
            return ffi.NULL
        return ffi.cast("void *", address)

    def release(_context: Any, pointer: Any, size: int) -> None:
        fences.release(int(ffi.cast("uintptr_t", pointer)), size)

    calls = (
        ffi.callback("void *(void *, uint64_t)", allocate),
        ffi.callback("void(void *, void *, uint64_t)", release),
    )
    made = ffi.new("kv_allocator *", (ffi.NULL, *calls))
    _kept.append((made, calls))
    return made
