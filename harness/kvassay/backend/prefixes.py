"""Prefix reuse: sequences that begin with the same tokens share the pages of their beginning.

docs/lifecycle.md, "Sequences that share". The store holds forks, and so the pages, of sequences
that were published with their tokens; a new sequence adopts the longest beginning that it shares
with one of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, StateError, UnsupportedError
from ..protocol import Cache, FloatArray
from ..spec import Spec
from .checks import check_donor

Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class Match:
    """What a new sequence may adopt: the first `tokens` of its tokens, as `pages` pages."""

    donor: Cache
    pages: int
    tokens: int

    def adopt(self, cache: Cache, layer: int, k: FloatArray, v: FloatArray) -> None:
        """Fill an empty layer: k and v are those of the tokens after the first `tokens`."""
        cache.adopt(layer, self.donor, self.pages, k, v)


class PrefixStore:
    """Published sequences of one spec by their tokens, the least recently used one first to go.

    `most` sequences are kept. `hashed` maps the tokens of a beginning to an integer; equal ones
    are compared token by token, so any function will do. Layers must agree in page size and sinks.
    """

    def __init__(self, spec: Spec, most: int = 1024, hashed: Callable[[bytes], int] = hash) -> None:
        layers = spec.layer_specs
        if len({(layer.page_tokens, layer.sinks) for layer in layers}) > 1:
            raise UnsupportedError(
                "prefixes: layers differ in page_tokens or sinks, so their pages hold other tokens"
            )
        if most < 1:
            raise InputError(f"prefixes: most is {most}; keep one sequence at least")
        self.spec = spec
        self._most = most
        self._hashed = hashed
        self._first = layers[0].sinks + layers[0].page_tokens
        self._page = layers[0].page_tokens
        self._sinks = layers[0].sinks
        self._window = max(layer.window for layer in layers)
        self._entries: OrderedDict[int, tuple[Tokens, Cache]] = OrderedDict()
        self._by_hash: dict[int, list[int]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def publish(self, tokens: Sequence[int] | Tokens, cache: Cache) -> bool:
        """Keep a fork of a cache that holds these tokens; whether it has a page to share.

        Raises IdentityError for a cache of another spec, StateError where the lengths differ or
        the first pages were retired.
        """
        check_donor(self.spec, cache)
        known = _tokens(tokens)
        if set(cache.lengths) != {len(known)}:
            raise StateError(f"publish: {len(known)} tokens for a cache of lengths {cache.lengths}")
        if self._pages(len(known)) < 1:
            return False
        if any(
            len(cache.pages(i)) < s.sealed(len(known)) for i, s in enumerate(self.spec.layer_specs)
        ):
            raise StateError("publish: the span has retired the first pages; publish earlier")
        key = self._hashed(known[: self._first].tobytes())
        self._entries[self._next] = (known, cache.fork())
        self._by_hash.setdefault(key, []).append(self._next)
        self._next += 1
        while len(self._entries) > self._most:
            self.evict()
        return True

    def match(self, tokens: Sequence[int] | Tokens) -> Match | None:
        """The longest beginning of these tokens that can be adopted: whole pages, and the window
        left to append."""
        wanted = _tokens(tokens)
        if self._pages(len(wanted)) < 1:
            return None
        best: tuple[int, int] | None = None
        for number in self._by_hash.get(self._hashed(wanted[: self._first].tobytes()), ()):
            known, _ = self._entries[number]
            pages = min(self._pages(_common(known, wanted)), self._sealed(len(known)))
            pages = min(pages, self._sealed(len(wanted)))
            if pages > 0 and (best is None or pages > best[0]):
                best = pages, number
        if best is None:
            return None
        pages, number = best
        self._entries.move_to_end(number)
        return Match(self._entries[number][1], pages, self._sinks + pages * self._page)

    def evict(self) -> bool:
        """Close the least recently used sequence; whether there was one."""
        if not self._entries:
            return False
        number, (known, cache) = self._entries.popitem(last=False)
        key = self._hashed(known[: self._first].tobytes())
        self._by_hash[key].remove(number)
        if not self._by_hash[key]:
            del self._by_hash[key]
        cache.close()
        return True

    def close(self) -> None:
        """Close all of them."""
        while self.evict():
            pass

    def _pages(self, tokens: int) -> int:
        """Whole pages within the first so many tokens."""
        return max(0, tokens - self._sinks) // self._page

    def _sealed(self, length: int) -> int:
        """Pages that every layer has sealed at that length."""
        return max(0, length - self._sinks - self._window) // self._page


def _tokens(tokens: Sequence[int] | Tokens) -> Tokens:
    known = np.asarray(tokens)
    if known.ndim != 1 or (known.size and known.dtype.kind not in "iu"):
        raise InputError(f"prefixes: tokens must be integers in a row, not {known.dtype}")
    return known.astype(np.int64)


def _common(a: Tokens, b: Tokens) -> int:
    """Tokens that both begin with."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if differ.size else n
