"""Asymmetric min-max rounding with fp16 step and minimum, shared by KIVI, FlexGen and others.

A group whose numbers are all equal is 0/0 as these methods are published; here its step is 0, its
codes are 0, and it decodes to its minimum.
"""

from __future__ import annotations

import numpy as np

from .base import F32, U8, Held, Shape, f16, f32
from .packing import pack, unpack


def encode(x: F32, bits: int, clip: float = 1.0) -> Held:
    """Groups x (..., n) as packed codes, steps and minima; `clip` shrinks the range about its
    middle.

    Codes are taken against the fp16 numbers that are stored, so that rounding those costs
    nothing twice.
    """
    low, high = x.min(axis=-1), x.max(axis=-1)
    if clip != 1.0:
        middle, half = (low + high) / 2, (high - low) * np.float32(clip / 2)
        low, high = middle - half, middle + half
    top = (1 << bits) - 1
    minima = f16("a group's minimum", low)
    steps = f16("a group's step", (high - low) / np.float32(top))
    codes = round_codes(x, f32(steps)[..., np.newaxis], f32(minima)[..., np.newaxis], top)
    return {"codes": pack(codes, bits), "steps": steps, "minima": minima}


def decode(held: Held, bits: int, count: int) -> F32:
    """Groups (..., count) from what `encode` gave."""
    codes = unpack(held["codes"], bits, count).astype(np.float32)
    out: F32 = codes * f32(held["steps"])[..., np.newaxis] + f32(held["minima"])[..., np.newaxis]
    return out


def round_codes(x: F32, steps: F32, minima: F32, top: int) -> U8:
    """Nearest codes 0 .. top; 0 where the step is 0."""
    safe = np.where(steps > 0, steps, np.float32(np.inf))
    return np.clip(np.rint((x - minima) / safe), 0, top).astype(np.uint8)


def encode_tokens(x: F32, bits: int, group: int, clip: float = 1.0) -> Held:
    """Vectors (heads, tokens, d) in groups of channels; a short group ends a d that needs one."""
    held: Held = {}
    for start, width, size in _channel_groups(x.shape[-1], group):
        part = x[..., start : start + width].reshape(*x.shape[:2], -1, size)
        held |= {f"{name}{start or ''}": array for name, array in encode(part, bits, clip).items()}
    return held


def decode_tokens(held: Held, bits: int, group: int, shape: Shape) -> F32:
    """The inverse of `encode_tokens`."""
    parts = []
    for start, width, size in _channel_groups(shape[-1], group):
        mine = {name: held[f"{name}{start or ''}"] for name in ("codes", "steps", "minima")}
        parts.append(decode(mine, bits, size).reshape(*shape[:2], width))
    return np.concatenate(parts, axis=-1)


def _channel_groups(d: int, group: int) -> list[tuple[int, int, int]]:
    """Whole groups, then what is left: (first channel, channels, group size)."""
    whole = d - d % group
    parts = [(0, whole, group), (whole, d - whole, d - whole)]
    return [part for part in parts if part[1]]
