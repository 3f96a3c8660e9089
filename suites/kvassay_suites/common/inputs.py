"""Deterministic keys, values and queries: plain and adversarial."""

from __future__ import annotations

from typing import Final

import numpy as np

from kvassay.protocol import FloatArray

FP16_MAX: Final = 65504.0
KINDS: Final = (
    "gaussian",
    "outliers",
    "biased",
    "constants",
    "huge",
    "subnormal",
    "one-hot",
    "mixed",
)


def _generator(*seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))


def _clip(x: FloatArray) -> FloatArray:
    return np.clip(x, -FP16_MAX, FP16_MAX).astype(np.float32)


def _rows(kind: str, random: np.random.Generator, shape: tuple[int, int, int]) -> FloatArray:
    rows = random.standard_normal(shape, dtype=np.float32)
    if kind != "mixed":
        return _made(kind, random, rows)
    choice = random.integers(0, len(KINDS) - 1, shape[:2])
    for number, part in enumerate(KINDS[:-1]):
        rows[choice == number] = _made(part, random, rows[choice == number])
    return rows


def _made(kind: str, random: np.random.Generator, normal: FloatArray) -> FloatArray:
    """Rows (..., d) of a kind from Gaussian ones, which may change."""
    shape = normal.shape
    if kind == "gaussian":
        return normal
    if kind == "outliers":
        normal[..., random.choice(shape[-1], 4, replace=False)] *= 30
        return normal
    if kind == "biased":
        normal[..., random.choice(shape[-1], 2, replace=False)] += 600
        return normal
    if kind == "constants":
        constants = np.array([0.0, 100.0, -3e-5, 6e4, -0.0], np.float32)
        return np.broadcast_to(random.choice(constants, shape[:-1])[..., None], shape).copy()
    if kind == "huge":
        return _clip(normal * 6e4)
    if kind == "subnormal":
        return normal * np.float32(2e-6)
    assert kind == "one-hot", kind
    out = np.zeros(shape, np.float32)
    where = random.integers(0, shape[-1], shape[:-1])
    np.put_along_axis(out, where[..., None], random.choice([-100.0, 1.0, 100.0]), axis=-1)
    return out


def tokens(kind: str, seed: int, n: int, heads: int, d: int) -> tuple[FloatArray, FloatArray]:
    """Keys and values (n, heads, d) float32 of one of KINDS."""
    random = _generator(1, seed, n, heads, d, KINDS.index(kind))
    return _rows(kind, random, (n, heads, d)), _rows(kind, random, (n, heads, d))


def queries(seed: int, n: int, heads: int, d: int) -> FloatArray:
    """Queries (n, heads, d): Gaussian, with zero, huge, tiny and one-hot heads strewn in."""
    random = _generator(2, seed, n, heads, d)
    rows = random.standard_normal((n, heads, d), dtype=np.float32)
    kind = random.integers(0, 12, (n, heads))
    rows[kind == 0] = 0
    rows[kind == 1] = _clip(rows[kind == 1] * 6e4)
    rows[kind == 2] *= np.float32(1e-19)
    rows[kind == 3, 1:] = 0
    rows[kind == 4] *= 40
    return rows


def gaussian(seed: int, *shape: int) -> FloatArray:
    """N(0, 1) float32, already rounded to fp16 so that storing it loses nothing."""
    normal = _generator(3, seed, *shape).standard_normal(shape)
    return normal.astype(np.float16).astype(np.float32)
