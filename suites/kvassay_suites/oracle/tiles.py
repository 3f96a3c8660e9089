"""Where each bit of each code lies (docs/page-format.md, section "Tiles")."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

#: Runs of channels of equal bits: (first channel, channels, bits).
Spans = tuple[tuple[int, int, int], ...]
TILE = 64


def spans_of(bits2: int, d: int) -> Spans:
    """The spans of a stream of `bits2` half bits a channel."""
    low = bits2 // 2
    if bits2 % 2 == 0:
        return ((0, d, low),)
    return ((0, d // 2, low), (d // 2, d // 2, low + 1))


def _in_tile(bits: int, code: int, bit: int) -> int:
    """Position, in bits, of bit `bit` of code number `code` of a tile."""
    if bits == 4:
        return 8 * (code % 32) + 4 * (code // 32) + bit
    if bits == 2:
        return 8 * (code % 16) + 2 * (code // 16) + bit
    if bits == 1:
        return code
    return _in_tile(2, code, bit) if bit < 2 else 128 + code


@lru_cache(maxsize=8)
def _tile_map(bits: int) -> NDArray[np.int64]:
    """(64, bits) positions."""
    return np.array([[_in_tile(bits, code, bit) for bit in range(bits)] for code in range(TILE)])


def head_bytes(spans: Spans, tokens: int) -> int:
    """Bytes of one head's codes."""
    return sum(channels * bits * tokens // 8 for _, channels, bits in spans)


@lru_cache(maxsize=64)
def key_addresses(spans: Spans, tokens: int) -> tuple[NDArray[np.int64], ...]:
    """For each span the bit addresses (tokens, channels, bits) inside one head of a key stream."""
    block_bits = 16 * sum(channels * bits for _, channels, bits in spans)
    out = []
    start = 0
    for _, channels, bits in spans:
        token, channel = np.meshgrid(np.arange(tokens), np.arange(channels), indexing="ij")
        tile = start + (channel // 4) * TILE * bits
        code = 4 * (token % 16) + channel % 4
        base = (token // 16) * block_bits + tile
        out.append(base[..., None] + _tile_map(bits)[code])
        start += 16 * channels * bits
    return tuple(out)


@lru_cache(maxsize=64)
def value_addresses(spans: Spans, tokens: int) -> tuple[NDArray[np.int64], ...]:
    """For each span the bit addresses (tokens, channels, bits) inside one head of values."""
    out = []
    start = 0
    for _, channels, bits in spans:
        token, channel = np.meshgrid(np.arange(tokens), np.arange(channels), indexing="ij")
        group = channel // 16
        in_tail = group * 16 + 16 > channels
        tile = np.where(in_tail, token // 8, token // 4)
        lane = np.where(in_tail, channel % 16 + 8 * (token // 4 % 2), channel % 16)
        base = start + (group * tokens // 4 + tile) * TILE * bits
        out.append(base[..., None] + _tile_map(bits)[4 * lane + token % 4])
        start += tokens * channels * bits
    return tuple(out)


def unpack(stream: bytes, addresses: tuple[NDArray[np.int64], ...]) -> NDArray[np.int64]:
    """Codes (tokens, d) of one head."""
    bits = np.unpackbits(np.frombuffer(stream, np.uint8), bitorder="little").astype(np.int64)
    parts = [(bits[where] << np.arange(where.shape[-1])).sum(-1) for where in addresses]
    return np.concatenate(parts, axis=1)
