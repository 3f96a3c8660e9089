"""Codes of any width as bytes, lowest bit first, without a gap between codes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .base import U8, Held

#: Consecutive channels with equal bits: (channels, bits).
Split = Sequence[tuple[int, int]]


def pack(codes: U8, bits: int) -> U8:
    """Codes (..., n) below 2^bits as bytes (..., ceil(n * bits / 8))."""
    planes = codes[..., np.newaxis] >> np.arange(bits, dtype=np.uint8) & np.uint8(1)
    return np.packbits(planes.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")


def unpack(packed: U8, bits: int, count: int) -> U8:
    """The inverse of `pack`: the first `count` codes of each row."""
    flat = np.unpackbits(packed, axis=-1, count=count * bits, bitorder="little")
    planes = flat.reshape(*packed.shape[:-1], count, bits)
    codes: U8 = (planes << np.arange(bits, dtype=np.uint8)).sum(axis=-1, dtype=np.uint8)
    return codes


def split_rate(bits: float, channels: int) -> Split:
    """Channels by bits: the fraction of `bits` is the share of channels that get one bit more."""
    low = int(bits)
    more = round(channels * (bits - low))
    return tuple(part for part in ((more, low + 1), (channels - more, low)) if part[0])


def pack_split(codes: U8, split: Split) -> Held:
    """Codes (..., channels) of several widths, one array a width; no bits take no array."""
    held: Held = {}
    at = 0
    for channels, bits in split:
        if bits:
            held[f"codes {bits} bits"] = pack(codes[..., at : at + channels], bits)
        at += channels
    return held


def unpack_split(held: Held, split: Split, lead: tuple[int, ...]) -> U8:
    """The inverse of `pack_split`, (*lead, channels)."""
    return np.concatenate(
        [
            unpack(held[f"codes {bits} bits"], bits, channels)
            if bits
            else np.zeros((*lead, channels), np.uint8)
            for channels, bits in split
        ],
        axis=-1,
    )
