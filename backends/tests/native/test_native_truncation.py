"""Truncation over windows, sinks, spans and page sizes against a list of tokens.

The oracle keeps the tokens in a list and knows of each token only where it is: fp16 or in a page,
held or retired. What may be cut follows from that; after a cut, a fresh cache with the surviving
tokens is byte-equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from native_tools import NATIVE, add, filled, make_spec, make_tokens

from kvassay import Cache, Spec
from kvassay.errors import SpanError, TruncateError
from kvassay.protocol import FloatArray

GRID = [
    (page_tokens, window, sinks, span)
    for page_tokens in (16, 32)
    for window in (0, 5, 16, 40)
    for sinks in (0, 3)
    for span in (None, 1, 24, 70)
]


@dataclass
class Oracle:
    """Token by token: which page a token is in (None: fp16), and which pages were retired."""

    spec: Spec
    page_of: list[int | None] = field(default_factory=list)
    retired: set[int] = field(default_factory=set)

    def append(self, count: int) -> None:
        length = len(self.page_of)
        if count and self.spec.span is not None:
            reach = max(
                0, length - self.spec.span
            )  # the oldest token that a query may still attend
            pages = {page for page in self.page_of[:reach] if page is not None}
            self.retired |= pages - set(self.page_of[reach:])
        for _ in range(count):
            self.page_of.append(None)
            self._seal()

    def _seal(self) -> None:
        fp16 = [
            token
            for token, page in enumerate(self.page_of)
            if page is None and token >= self.spec.sinks
        ]
        if len(fp16) == self.spec.window + self.spec.page_tokens:
            number = sum(page is not None for page in self.page_of) // self.spec.page_tokens
            for token in fp16[: self.spec.page_tokens]:
                self.page_of[token] = number

    def refusal(self, n: int) -> type[Exception] | None:
        """Why a cut to n tokens is impossible."""
        if n == len(self.page_of):
            return None
        fresh = Oracle(self.spec)
        fresh.append(n)
        if any(
            new is None and old is not None
            for new, old in zip(fresh.page_of, self.page_of, strict=False)
        ):
            return TruncateError  # must be fp16 again, exists only as codes
        reach = max(0, n - (n if self.spec.span is None else self.spec.span))
        seen = {page for page in fresh.page_of[reach:] if page is not None}
        return SpanError if seen & self.retired else None

    def cut(self, n: int) -> None:
        del self.page_of[n:]
        self.retired &= {page for page in self.page_of if page is not None}


def chunks(rng: np.random.Generator, total: int) -> list[int]:
    sizes: list[int] = []
    while sum(sizes) < total:
        sizes.append(min(int(rng.integers(1, 40)), total - sum(sizes)))
    return sizes


def apply(spec: Spec, data: FloatArray, sizes: list[int]) -> tuple[Oracle, Cache]:
    oracle, cache, at = Oracle(spec), NATIVE.prepare(spec), 0
    for size in sizes:
        oracle.append(size)
        add(cache, data[:, at : at + size])
        at += size
    return oracle, cache


@pytest.mark.parametrize(("page_tokens", "window", "sinks", "span"), GRID)
def test_truncation_follows_the_rules(
    page_tokens: int, window: int, sinks: int, span: int | None
) -> None:
    spec = make_spec(page_tokens=page_tokens, window=window, sinks=sinks, span=span)
    data = make_tokens(spec, 150)
    rng = np.random.default_rng([page_tokens, window, sinks, span or 0])
    fresh: dict[int, bytes] = {}

    def expected(n: int) -> bytes:
        if n not in fresh:
            fresh[n] = filled(spec, data[:, :n]).dump()
        return fresh[n]

    for _ in range(25):
        length = int(rng.integers(1, 130))
        oracle, cache = apply(spec, data, chunks(rng, length))
        n = int(rng.integers(0, length + 1))
        refusal = oracle.refusal(n)
        with cache:
            if refusal is not None:
                with pytest.raises(refusal):
                    cache.truncate(n)
                n = length
            else:
                cache.truncate(n)
                oracle.cut(n)
            assert cache.length == n
            assert cache.dump() == expected(n)
            add(cache, data[:, n : n + 20])
            assert cache.dump() == expected(n + 20)


def test_the_grid_meets_every_outcome() -> None:
    """Otherwise the test above could agree about nothing."""
    outcomes = set()
    for page_tokens, window, sinks, span in GRID:
        spec = make_spec(page_tokens=page_tokens, window=window, sinks=sinks, span=span)
        oracle = Oracle(spec)
        for _ in range(10):
            oracle.append(13)
        outcomes |= {oracle.refusal(n) for n in range(5, 131, 25)}
    assert outcomes == {None, TruncateError, SpanError}
