"""Codes and scales of an index in memory: they grow by doubling and shrink in place.

What is stored depends on the vectors alone, never on how they came and went: after any additions
and removals the bytes are those of a new store that was given the surviving vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..page.tiles import LANES, pack_keys, unpack_keys
from .code import VectorCode
from .protocol import F32, U8, Stored

#: Vectors that are unpacked at a time, a multiple of 16.
_BATCH = 4096


class Growing:
    """An array whose first axis grows by doubling; a mapped one is copied before it changes."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.count = len(array)

    @property
    def view(self) -> NDArray[Any]:
        """What is in use, without copying."""
        return self._array[: self.count]

    @property
    def nbytes(self) -> int:
        """Bytes held, spare ones too."""
        return int(self._array.nbytes)

    def append(self, rows: NDArray[Any]) -> None:
        """Rows at the end."""
        count = self.count + len(rows)
        self._array = _with_room(self._array, self.count, count, 0)
        self._array[self.count : count] = rows
        self.count = count

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Only the rows that are true, in their order."""
        self._array = self.view[kept]
        self.count = len(self._array)


class Store:
    """Codes and scales of `count` vectors; `tiles` (slabs, blocks, bytes of a block)."""

    def __init__(self, code: VectorCode, stored: Stored | None = None) -> None:
        self._code = code
        self._splits = ((0, code.width, code.bits),)
        size = LANES * code.width * code.bits // 8
        empty = Stored(np.zeros((code.slabs, 0, size), np.uint8), np.zeros(0, np.float32), 0)
        stored = stored or empty
        self._tiles, self._scales, self.count = stored.tiles, stored.scales, stored.count
        self._stored: Stored | None = None

    @property
    def blocks(self) -> int:
        """Blocks of 16 vectors in use."""
        return -(-self.count // LANES)

    @property
    def stored(self) -> Stored:
        """What a scorer reads, without copying: the same object until something changes."""
        if self._stored is None:
            used = self.blocks
            self._stored = Stored(self._tiles[:, :used], self._scales[: used * LANES], self.count)
        return self._stored

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes held, spare ones too."""
        return {"codes": int(self._tiles.nbytes), "scales": int(self._scales.nbytes)}

    def append(self, codes: U8, scales: F32) -> None:
        """Codes (n, channels), one a byte, and scales (n,) at the end."""
        self._stored = None
        count = self.count + len(codes)
        blocks = -(-count // LANES)
        tiles = _with_room(self._tiles, self.blocks, blocks, 1)
        self._scales = _with_room(self._scales, self.blocks * LANES, tiles.shape[1] * LANES, 0)
        self._tiles = tiles
        begun = self.count % LANES  # vectors of the last block, which is packed again
        for start in range(-begun, len(codes), _BATCH):
            part = codes[max(start, 0) : start + _BATCH]
            if start < 0:
                part = np.concatenate([self._unpack(self.count - begun, self.count), part])
            self._pack((self.count + start) // LANES, part)
        self._scales[self.count : count] = scales
        self.count = count

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Only the vectors that are true, in their order."""
        if kept.all():
            return
        self._stored = None
        self._tiles, self._scales = _owned(self._tiles), _owned(self._scales)
        before = self.count
        self.count = int(np.argmin(kept)) // LANES * LANES
        for start in range(self.count, before, _BATCH):
            end = min(start + _BATCH, before)
            codes = self._unpack(start, end)[kept[start:end]]
            scales = self._scales[start:end][kept[start:end]]
            self.append(codes, scales)  # whole blocks up to `end` at most: the rest is not read yet
        self._scales[self.count :] = 0
        if 4 * self.blocks < self._tiles.shape[1]:
            self._tiles = self._tiles[:, : self.blocks].copy()
            self._scales = self._scales[: self.blocks * LANES].copy()

    def _pack(self, block: int, codes: U8) -> None:
        """Codes into whole blocks from `block` on; what is left of the last is zeros."""
        code = self._code
        blocks = -(-len(codes) // LANES)
        padded = np.zeros((blocks * LANES, code.channels), np.uint8)
        padded[: len(codes)] = codes
        for slab in range(code.slabs):
            own = padded[:, slab * code.width : (slab + 1) * code.width]
            packed = pack_keys(own, self._splits)
            self._tiles[slab, block : block + blocks] = packed.reshape(blocks, -1)

    def _unpack(self, start: int, end: int) -> U8:
        """Codes of vectors, (end - start, channels)."""
        first, last = start // LANES, -(-end // LANES)
        parts = [
            unpack_keys(tiles[first:last].reshape(-1), self._splits, (last - first) * LANES)
            for tiles in self._tiles
        ]
        return np.concatenate(parts, axis=1)[start - first * LANES : end - first * LANES]


def unpack(code: VectorCode, stored: Stored, start: int, end: int) -> U8:
    """Codes (end - start, channels) of stored vectors; `start` is a multiple of 16."""
    return Store(code, stored)._unpack(start, end)


def _owned(array: NDArray[Any]) -> NDArray[Any]:
    return array if array.flags.writeable else array.copy()


def _with_room(array: NDArray[Any], used: int, wanted: int, axis: int) -> NDArray[Any]:
    """The array, or a copy of what is used with room for `wanted` entries along an axis."""
    if wanted <= array.shape[axis] and array.flags.writeable:
        return array
    shape = list(array.shape)
    shape[axis] = wanted if used == 0 else max(wanted, 2 * used if wanted > used else used)
    grown = np.zeros(shape, array.dtype)
    taken = (slice(None),) * axis + (slice(used),)
    grown[taken] = array[taken]
    return grown
