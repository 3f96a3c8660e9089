"""What a cache must be: the tokens it was given and nothing else. Rules from docs/lifecycle.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np

import kvassay
from kvassay.protocol import Backend, Cache, FloatArray
from kvassay.spec import LayerSpec

#: Different tokens there are; a token is a number of a row.
ROWS = 251


def rows(spec: kvassay.Spec, tokens: list[int], stream: int) -> FloatArray:
    """Keys (stream 0) or values (1) of tokens, (tokens, kv_heads, head_dim)."""
    return _table(spec.kv_heads, spec.head_dim, stream)[np.asarray(tokens, np.intp)]


@cache
def _table(kv_heads: int, head_dim: int, stream: int) -> FloatArray:
    random = np.random.default_rng(7 + stream)
    return random.standard_normal((ROWS, kv_heads, head_dim), np.float32)


@dataclass
class Sequence:
    """A cache, the tokens of each of its layers, and the lengths at each mark."""

    cache: Cache
    tokens: list[list[int]]
    marks: list[tuple[int, ...]] = field(default_factory=list)
    promised: list[int] = field(default_factory=list)

    @property
    def spec(self) -> kvassay.Spec:
        """The spec of the cache."""
        return self.cache.spec

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens a layer, as it must be."""
        return tuple(map(len, self.tokens))

    def cut(self, lengths: tuple[int, ...]) -> None:
        """Keep the first tokens of each layer."""
        self.tokens = [layer[:n] for layer, n in zip(self.tokens, lengths, strict=True)]

    def fresh(self, backend: Backend) -> Cache:
        """A new cache that got the tokens of each layer in one append."""
        made = backend.prepare(self.spec)
        for layer, tokens in enumerate(self.tokens):
            made.append(layer, rows(self.spec, tokens, 0), rows(self.spec, tokens, 1))
        return made


def cuttable(spec: LayerSpec, length: int, n: int) -> bool:
    """Whether a layer of `length` tokens still has as fp16 all that must be fp16 at n."""
    sealed = spec.sealed(n)
    whole = n == spec.sinks + sealed * spec.page_tokens
    return n >= length or n <= spec.sinks or sealed == spec.sealed(length) or whole


def keepable(spec: LayerSpec, length: int, marked: int, promised: int, keep: int) -> bool:
    """Whether a rollback may keep so many tokens: each that must be fp16 again is in the mark or
    still in the residual."""
    n = marked + keep
    start, present, kept = (
        spec.sinks + spec.sealed(at) * spec.page_tokens for at in (n, length, marked)
    )
    at_risk = (spec.sealed(marked + promised) - spec.sealed(marked)) * spec.page_tokens
    held = min(max(0, marked - kept), at_risk)
    missing = min(n, present)
    return start >= missing or (kept <= start and missing <= kept + held)
