"""Rotary embedding, to store keys before it and score them after it (Su and others, 2104.09864)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import F32


class Rotary:
    """Channels in pairs, pair c of token t turned by t * base^(-2c/d).

    order: pairs are neighbours ("interleaved") or channels c and c + d/2 ("half").
    """

    def __init__(self, d: int, base: float, order: str) -> None:
        self._frequencies = base ** (-np.arange(0, d, 2) / d)
        self._order = order

    def turn(self, x: F32, back: bool = False) -> F32:
        """x (heads, tokens, d) with token t turned to position t, or back from it."""
        turned = self._complex(x) * self._phases(x.shape[1], back)
        return self._real(turned)

    def products(self, q: F32, keys: F32) -> F32:
        """<q, turn(keys)>, (heads, n, tokens), of q (heads, n, d): the query is turned back.

        The real part of q conj(k e^(i t w)) is that of (q e^(-i t w)) conj(k): a key is read as it
        is stored, whatever its position.
        """
        pairs, phases = np.conj(self._complex(keys)), self._phases(keys.shape[1], back=True)
        out = np.empty((*q.shape[:2], keys.shape[1]), np.float32)
        for i in range(q.shape[1]):  # one query at a time: a turned query a token is large enough
            turned = self._complex(q[:, i : i + 1]) * phases
            out[:, i] = np.einsum("htc,htc->ht", turned, pairs).real
        return out

    def _phases(self, tokens: int, back: bool) -> Any:
        angles = np.arange(tokens)[:, np.newaxis] * self._frequencies
        return np.exp((-1j if back else 1j) * angles)

    def _complex(self, x: F32) -> Any:
        if self._order == "interleaved":
            return x[..., 0::2] + 1j * x[..., 1::2]
        half = x.shape[-1] // 2
        return x[..., :half] + 1j * x[..., half:]

    def _real(self, z: Any) -> F32:
        parts = (z.real, z.imag)
        if self._order == "interleaved":
            joined = np.stack(parts, axis=-1).reshape(*z.shape[:-1], -1)
        else:
            joined = np.concatenate(parts, axis=-1)
        return np.asarray(joined, np.float32)
