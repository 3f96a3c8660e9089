"""KIVI: asymmetric codes in groups of 32, keys per channel over tokens, values per token over
channels (section 6)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvassay.page.layout import KIVI_GROUP

from .arithmetic import F16, F32, f16s, f32, rne, single


def groups(n: int) -> list[slice]:
    """The groups of n consecutive tokens or channels; the last may have 16."""
    return [slice(start, min(start + KIVI_GROUP, n)) for start in range(0, n, KIVI_GROUP)]


def encode_keys(r: F32, bits: int) -> tuple[NDArray[np.uint8], F16, F16]:
    """Codes (heads, tokens, d), steps and minima (heads, groups, d) of r (heads, tokens, d)."""
    parts = [_encode(r[:, group], bits, axis=1) for group in groups(r.shape[1])]
    codes, steps, minima = zip(*parts, strict=True)
    return np.concatenate(codes, 1), np.concatenate(steps, 1), np.concatenate(minima, 1)


def encode_values(r: F32, bits: int) -> tuple[NDArray[np.uint8], F16, F16]:
    """Codes (heads, tokens, d), steps and minima (heads, groups, tokens) of r (heads, tokens,
    d)."""
    parts = [_encode(r[..., group], bits, axis=2) for group in groups(r.shape[2])]
    codes, steps, minima = zip(*parts, strict=True)

    def by_group(arrays: tuple[F16, ...]) -> F16:
        return np.ascontiguousarray(np.swapaxes(np.concatenate(arrays, 2), 1, 2))

    return np.concatenate(codes, 2), by_group(steps), by_group(minima)


def _encode(r: F32, bits: int, axis: int) -> tuple[NDArray[np.uint8], F16, F16]:
    """One group along `axis`, which is kept with length 1 in steps and minima."""
    n = np.float32(2**bits - 1)
    zero = np.float32(0)
    least = single(r.min(axis=axis, keepdims=True) + zero)
    most = single(r.max(axis=axis, keepdims=True) + zero)
    lo = f16s(least)
    range_ = np.maximum(single(most - f32(lo)), zero)
    step = f16s(single(range_ / n))
    flat = step == 0
    divisor = np.where(flat, np.float32(1), f32(step))
    quotient = np.clip(single(single(r - f32(lo)) / divisor), np.float32(-1), np.float32(2.0**20))
    codes = np.minimum(n, np.maximum(zero, rne(quotient)))
    return np.where(flat, zero, codes).astype(np.uint8), step, lo
