"""Packing of b-bit codes into tiles of 64, and the two orders in which a page holds them.

Format only (docs/page-format.md, "Tiles"); what a code stands for is the codec's business. A tile
has 16 lanes of 4 summands, code number `4 * lane + summand`. Keys put tokens on lanes and sum over
channels, values put channels on lanes and sum over tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]
#: Spans of channels with equal bits, as `Codec.splits` gives them: (first channel, channels, bits).
Splits = Sequence[tuple[int, int, int]]

TILE: Final = 64
LANES: Final = 16
SUMMANDS: Final = 4


def pack_tiles(codes: Codes, bits: int) -> Codes:
    """Codes (..., 64) as packed bytes (..., 8 * bits); every code must be below 2^bits."""
    if bits == 1:
        return np.packbits(codes, axis=-1, bitorder="little")
    if bits == 3:
        return np.concatenate(
            [pack_tiles(codes & np.uint8(3), 2), pack_tiles(codes >> np.uint8(2), 1)], axis=-1
        )
    size = 8 * bits
    packed = np.zeros((*codes.shape[:-1], size), np.uint8)
    for part in range(TILE // size):
        packed |= codes[..., part * size : (part + 1) * size] << np.uint8(bits * part)
    return packed


def unpack_tiles(packed: Codes, bits: int) -> Codes:
    """The inverse of `pack_tiles`: bytes (..., 8 * bits) as codes (..., 64)."""
    if bits == 1:
        return np.unpackbits(packed, axis=-1, bitorder="little")
    if bits == 3:
        low, high = unpack_tiles(packed[..., :16], 2), unpack_tiles(packed[..., 16:], 1)
        return low | high << np.uint8(2)
    mask = np.uint8((1 << bits) - 1)
    parts = [packed >> np.uint8(bits * part) & mask for part in range(8 // bits)]
    return np.concatenate(parts, axis=-1)


def pack_keys(codes: Codes, splits: Splits) -> Codes:
    """Key codes (..., tokens, channels) as the bytes of a head (..., n), blocks of 16 tokens."""
    *lead, tokens, _ = codes.shape
    blocks = []
    for start, count, bits in splits:
        grid = codes[..., start : start + count].reshape(
            *lead, tokens // LANES, LANES, count // SUMMANDS, SUMMANDS
        )
        tiles = np.swapaxes(grid, -3, -2).reshape(*grid.shape[:-3], count // SUMMANDS, TILE)
        blocks.append(pack_tiles(tiles, bits).reshape(*grid.shape[:-3], -1))
    return np.concatenate(blocks, axis=-1).reshape(*lead, -1)


def unpack_keys(packed: Codes, splits: Splits, tokens: int) -> Codes:
    """The inverse of `pack_keys`."""
    *lead, size = packed.shape
    blocks = packed.reshape(*lead, tokens // LANES, size * LANES // tokens)
    parts, at = [], 0
    for _, count, bits in splits:
        end = at + 2 * count * bits
        tiles = unpack_tiles(
            blocks[..., at:end].reshape(*blocks.shape[:-1], count // SUMMANDS, 8 * bits), bits
        )
        grid = np.swapaxes(tiles.reshape(*tiles.shape[:-1], LANES, SUMMANDS), -3, -2)
        parts.append(grid.reshape(*lead, tokens, count))
        at = end
    return np.concatenate(parts, axis=-1)


def pack_values(codes: Codes, splits: Splits) -> Codes:
    """Value codes (..., tokens, channels) as the bytes of a head (..., n), groups of 16
    channels."""
    *lead, _, _ = codes.shape
    runs = []
    for start, count, bits in splits:
        for first, width in _channel_groups(start, count):
            tiles = _value_tiles(codes[..., first : first + width])
            runs.append(pack_tiles(tiles, bits).reshape(*lead, -1))
    return np.concatenate(runs, axis=-1)


def unpack_values(packed: Codes, splits: Splits, tokens: int) -> Codes:
    """The inverse of `pack_values`."""
    *lead, _ = packed.shape
    parts, at = [], 0
    for start, count, bits in splits:
        for _, width in _channel_groups(start, count):
            end = at + tokens * width * bits // 8
            tiles = unpack_tiles(packed[..., at:end].reshape(*lead, -1, 8 * bits), bits)
            parts.append(_value_grid(tiles, tokens, width))
            at = end
    return np.concatenate(parts, axis=-1)


def _channel_groups(start: int, count: int) -> list[tuple[int, int]]:
    """Groups of a span as (first channel, channels): 16 at a time, then 8 where half a group is
    left."""
    return [
        (first, min(LANES, start + count - first)) for first in range(start, start + count, LANES)
    ]


def _value_tiles(codes: Codes) -> Codes:
    """One group of channels (..., tokens, width), width 16 or 8, as tiles (..., n, 64)."""
    *lead, tokens, width = codes.shape
    fold = LANES // width
    grid = codes.reshape(*lead, tokens // (fold * SUMMANDS), fold, SUMMANDS, width)
    return np.swapaxes(grid, -2, -1).reshape(*lead, -1, TILE)


def _value_grid(tiles: Codes, tokens: int, width: int) -> Codes:
    """The inverse of `_value_tiles`."""
    *lead, count, _ = tiles.shape
    grid = tiles.reshape(*lead, count, LANES // width, width, SUMMANDS)
    return np.swapaxes(grid, -2, -1).reshape(*lead, tokens, width)
