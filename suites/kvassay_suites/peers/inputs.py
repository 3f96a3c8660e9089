"""Inputs of a case, and what float64 says must come out. Made once, read by every process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..oracle.rotation import KEYS, rotation
from .cases import Case

_NAMES: Final = ("q", "keys", "values", "expected")
_BLOCK: Final = 1 << 16
#: Of logits. Attention that is flat over many tokens averages values to almost nothing, and then
#: errors are compared with next to nothing.
_SPREAD: Final = np.float32(2)


@dataclass(frozen=True)
class Inputs:
    """q (queries, query_heads, d), keys and values (tokens, kv_heads, d), all float32 and exact in
    fp16, and the expected result in float64: attention of q, shaped like it, for the kinds that
    fill or read a cache, else logits (query_heads, tokens) without a scale.
    """

    q: NDArray[np.float32]
    keys: NDArray[np.float32]
    values: NDArray[np.float32]
    expected: NDArray[np.float64]

    def save(self, folder: Path) -> None:
        """Write each array into `folder`."""
        for name in _NAMES:
            np.save(folder / f"{name}.npy", getattr(self, name))

    @classmethod
    def load(cls, folder: Path) -> Inputs:
        """Map what `save` wrote, read-only: the processes share it."""
        return cls(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in _NAMES))


def make_inputs(case: Case, seed: int = 0) -> Inputs:
    """Gaussian inputs of a case; the same seed gives the same ones."""
    rng = np.random.default_rng(seed)
    total = case.tokens + (case.queries if case.kind == "append" else 0)
    shape = (total, case.kv_heads, case.head_dim)
    keys = _gaussian(rng, shape)
    scans = case.kind in ("scan", "scores", "transform")
    values = np.zeros((1, case.kv_heads, case.head_dim), np.float32)
    if not scans:
        values = _gaussian(rng, shape)
    queries = case.queries if case.kind == "attend" else 1
    q = _SPREAD * _gaussian(rng, (queries, case.query_heads, case.head_dim))
    if case.kind == "transform":
        expected = q[0] @ rotation(case.head_dim, 0, KEYS, 2).T
    else:
        expected = logits64(q[0], keys) if scans else attend64(q, keys, values)
    return Inputs(q, keys, values, expected)


def _gaussian(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    out = rng.standard_normal(shape, dtype=np.float32)
    for start in range(0, len(out), _BLOCK):
        part = out[start : start + _BLOCK]
        part[...] = part.astype(np.float16)
    return out


def logits64(q: NDArray[np.float32], keys: NDArray[np.float32]) -> NDArray[np.float64]:
    """q (query_heads, d) times the keys of each one's KV head: (query_heads, tokens)."""
    tokens, kv_heads, d = keys.shape
    heads = q.reshape(kv_heads, -1, d).astype(np.float64)
    out = np.empty((kv_heads, heads.shape[1], tokens))
    for start in range(0, tokens, _BLOCK):
        part = keys[start : start + _BLOCK].astype(np.float64)
        out[:, :, start : start + _BLOCK] = heads @ part.transpose(1, 2, 0)
    return out.reshape(len(q), tokens)


def attend64(
    q: NDArray[np.float32], keys: NDArray[np.float32], values: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Softmax attention at scale 1/sqrt(d), causal over the last tokens; shaped like q."""
    n, query_heads, d = q.shape
    tokens, kv_heads, _ = keys.shape
    group = query_heads // kv_heads
    hidden = np.arange(tokens) > np.arange(tokens - n, tokens)[:, None]
    out = np.empty(q.shape)
    for head in range(query_heads):
        k, v = keys[:, head // group].astype(np.float64), values[:, head // group]
        logits = np.where(hidden, -np.inf, q[:, head].astype(np.float64) @ k.T / np.sqrt(d))
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        out[:, head] = weights @ v.astype(np.float64) / weights.sum(axis=1, keepdims=True)
    return out
