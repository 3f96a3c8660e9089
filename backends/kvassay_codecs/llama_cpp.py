"""llama.cpp's cache types: blocks of 32 channels in ggml's own byte layout (ggml-common.h).

The bytes are those of ggml's reference quantizers (`quantize_row_*_ref` in ggml-quants.c): float32
arithmetic, the step rounded to fp16 only when it is stored.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Final

import numpy as np

from .base import F32, U8, Codec, Held, Shape, f16

BLOCK: Final = 32


class Blocks(Codec):
    """Blocks of 32 channels, one uint8 array (heads, tokens, head_dim / 32, bytes a block)."""

    paper = "ggml-quants.c of llama.cpp"
    granularity = "32 channels"
    claim = "none published for caches"
    block_bytes: ClassVar[int]

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        if self.head_dim % BLOCK:
            raise self._refuse(
                f"head_dim {self.head_dim} is not a multiple of {BLOCK}, the block of llama.cpp"
            )

    @abstractmethod
    def _blocks(self, x: F32) -> U8:
        """Bytes (n, block_bytes) of blocks (n, 32)."""

    @abstractmethod
    def _numbers(self, blocks: U8) -> F32:
        """The inverse of `_blocks`."""

    def _pack(self, x: F32) -> Held:
        blocks = self._blocks(x.reshape(-1, BLOCK))
        return {"blocks": blocks.reshape(*x.shape[:2], -1, self.block_bytes)}

    def _unpack(self, held: Held, shape: Shape) -> F32:
        return self._numbers(held["blocks"].reshape(-1, self.block_bytes)).reshape(shape)


class Q8_0(Blocks):
    """fp16 step |x|max / 127, 32 int8 codes: 8.5 bits."""

    rates = (8.0,)
    block_bytes = 34

    def _blocks(self, x: F32) -> U8:
        step = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
        codes = _round_away(x * inverse(step)).astype(np.int8)
        return np.concatenate([as_bytes(step), codes.view(np.uint8)], axis=1)

    def _numbers(self, blocks: U8) -> F32:
        codes = blocks[:, 2:].view(np.int8).astype(np.float32)
        return codes * as_floats(blocks[:, :2])


class Signed(Blocks):
    """q4_0 and q5_0: the number of largest magnitude sits at -2^(b-1) steps exactly."""

    def _blocks(self, x: F32) -> U8:
        half = self.levels // 2
        extreme = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, np.newaxis], axis=1)
        step = extreme / np.float32(-half)
        shifted = np.trunc(x * inverse(step) + np.float32(half + 0.5))
        codes = np.minimum(shifted, self.levels - 1).astype(np.uint8)
        return np.concatenate([as_bytes(step), *bit_planes(codes, int(self.bits))], axis=1)

    def _numbers(self, blocks: U8) -> F32:
        codes = from_bit_planes(blocks[:, 2:], int(self.bits)).astype(np.float32)
        return (codes - np.float32(self.levels // 2)) * as_floats(blocks[:, :2])


class Affine(Blocks):
    """q4_1 and q5_1: fp16 step (max - min) / (2^b - 1) and minimum."""

    def _blocks(self, x: F32) -> U8:
        low = x.min(axis=1, keepdims=True)
        step = (x.max(axis=1, keepdims=True) - low) / np.float32(self.levels - 1)
        shifted = np.trunc((x - low) * inverse(step) + np.float32(0.5))
        codes = np.minimum(shifted, self.levels - 1).astype(np.uint8)
        planes = bit_planes(codes, int(self.bits))
        return np.concatenate([as_bytes(step), as_bytes(low), *planes], axis=1)

    def _numbers(self, blocks: U8) -> F32:
        codes = from_bit_planes(blocks[:, 4:], int(self.bits)).astype(np.float32)
        return codes * as_floats(blocks[:, :2]) + as_floats(blocks[:, 2:4])


class Q4_0(Signed):
    """fp16 step, 4-bit codes: 4.5 bits."""

    rates = (4.0,)
    block_bytes = 18


class Q5_0(Signed):
    """fp16 step, fifth bits, four low bits: 5.5 bits."""

    rates = (5.0,)
    block_bytes = 22


class Q4_1(Affine):
    """fp16 step and minimum, 4-bit codes: 5 bits."""

    rates = (4.0,)
    block_bytes = 20


class Q5_1(Affine):
    """fp16 step and minimum, fifth bits, four low bits: 6 bits."""

    rates = (5.0,)
    block_bytes = 24


def inverse(step: F32) -> F32:
    """1 / step, 0 where it is 0."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(step == 0, np.float32(0), np.float32(1) / step)


def as_bytes(numbers: F32) -> U8:
    """One number a block as the two bytes of its fp16, (n, 2)."""
    return f16("a block's step or minimum", numbers).view(np.uint8)


def as_floats(two: U8) -> F32:
    """The inverse of `as_bytes`, (n, 1)."""
    return np.ascontiguousarray(two).view(np.float16).astype(np.float32)


def bit_planes(codes: U8, bits: int) -> list[U8]:
    """Fifth bits of 5-bit codes, channel 0 lowest; then channels j and j + 16 in byte j."""
    low = codes & np.uint8(15)
    nibbles = low[:, : BLOCK // 2] | low[:, BLOCK // 2 :] << np.uint8(4)
    high = [np.packbits(codes >> np.uint8(4), axis=1, bitorder="little")]
    return [*(high if bits == 5 else []), nibbles]


def from_bit_planes(data: U8, bits: int) -> U8:
    """The inverse of `bit_planes`."""
    nibbles = data[:, 4:] if bits == 5 else data
    low: U8 = np.concatenate([nibbles & np.uint8(15), nibbles >> np.uint8(4)], axis=1)
    if bits == 5:
        low |= np.unpackbits(data[:, :4], axis=1, bitorder="little") << np.uint8(4)
    return low


def _round_away(x: F32) -> F32:
    """C's roundf: halves away from zero."""
    whole = np.trunc(x)
    out: F32 = whole + np.trunc(np.float32(2) * (x - whole))
    return out
