"""What the measured caches are given: shapes, tokens, and calls of every kind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

import kvassay
from kvassay.errors import NonFiniteError
from kvassay.page.dump import LayerDump, pack_dump, parse_dump
from kvassay.page.layout import with_crc
from kvassay.protocol import Backend, Cache, FloatArray

from ..common.inputs import gaussian

#: Where a page's header keeps the position of its first token (docs/page-format.md).
_TOKEN_START: Final = slice(40, 44)


@dataclass(frozen=True)
class Tokens:
    """Keys, values (tokens, kv_heads, head_dim) and queries (n, query_heads, head_dim)."""

    k: FloatArray
    v: FloatArray
    q: FloatArray

    @classmethod
    def of(cls, spec: kvassay.Spec, count: int, queries: int = 4) -> Tokens:
        """Gaussian ones; the same for every layer, so that inputs stay small beside the cache."""
        shape = (count, spec.kv_heads, spec.head_dim)
        q = gaussian(3, queries, spec.query_heads, spec.head_dim)
        return cls(gaussian(1, *shape), gaussian(2, *shape), q)

    def chunks(self, size: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Keys and values, so many tokens at a time."""
        for start in range(0, len(self.k), size):
            yield self.k[start : start + size], self.v[start : start + size]


def preset_spec(preset: str, shape: dict[str, Any]) -> kvassay.Spec:
    """A preset with a shape; its window and pages may be in the shape too."""
    return kvassay.preset(preset, **shape)


def fill(cache: Cache, tokens: Tokens, chunk: int) -> None:
    """Append all tokens to every layer in chunks."""
    for layer in range(cache.spec.layers):
        for k, v in tokens.chunks(chunk):
            cache.append(layer, k, v)


def attend_all(cache: Cache, q: FloatArray) -> None:
    """One query, several queries and scores, on every layer."""
    for layer in range(cache.spec.layers):
        cache.attend(layer, q[0])
        cache.attend(layer, q)
        cache.scores(layer, q[0])


def warm_up(backend: Backend, spec: kvassay.Spec) -> None:
    """One use of everything that a process keeps for caches of this spec: tables, buffers, code."""
    tokens = Tokens.of(spec, spec.sinks + spec.window + spec.page_tokens + 1)
    with backend.prepare(spec) as cache:
        fill(cache, tokens, len(tokens.k))
        attend_all(cache, tokens.q)


def session(backend: Backend, spec: kvassay.Spec, tokens: Tokens) -> None:
    """One short life in which every operation of the protocol is used, failures included."""
    with backend.prepare(spec) as cache:
        fill(cache, tokens, 7)
        attend_all(cache, tokens.q)
        with cache.fork() as other:
            other.append(0, tokens.k[:3], tokens.v[:3])
        with contextlib.suppress(NonFiniteError):
            cache.append(0, np.full_like(tokens.k, np.nan), tokens.v)
        dump = cache.dump()
        cache.truncate(min(cache.length, spec.sinks))
        cache.reset()
        backend.restore(spec, dump).close()


def long_cache(backend: Backend, spec: kvassay.Spec, length: int) -> Cache:
    """A cache of `length` tokens without the time to encode them: a dump whose pages repeat.

    The first pages of each layer are the backend's own; they come again under later token starts.
    """
    layer_spec = spec.layer(0)
    few = layer_spec.sinks + layer_spec.window + 4 * layer_spec.page_tokens
    few += (length - few) % layer_spec.page_tokens
    with backend.prepare(spec) as cache:
        fill(cache, Tokens.of(spec, few), few)
        layers = parse_dump(spec, cache.dump())
    grown = [_grown(layer, layer_spec.page_tokens, layer_spec.sinks, length) for layer in layers]
    return backend.restore(spec, pack_dump(spec, grown))


def _grown(layer: LayerDump, page_tokens: int, sinks: int, length: int) -> LayerDump:
    more = (length - layer.length) // page_tokens
    pages = list(layer.pages)
    for number in range(len(pages), len(pages) + more):
        page = bytearray(layer.pages[number % len(layer.pages)])
        page[_TOKEN_START] = (sinks + number * page_tokens).to_bytes(4, "little")
        pages.append(with_crc(bytes(page)))
    return replace(layer, length=length, pages=pages)
