"""Faults of state: chunking, reuse, truncation, forks, spans, neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

import kvassay
from kvassay.errors import StateError, TruncateError
from kvassay.protocol import Backend, Cache

from ..oracle import attend64, scores64
from .fault_case import expect, expect_refusal, filled, kv, plain, query, same, turbo


def _chunked(backend: Backend, spec: kvassay.Spec, chunks: Sequence[int]) -> Cache:
    k, v = kv(spec, sum(chunks))
    cache = backend.prepare(spec)
    start = 0
    for n in chunks:
        cache.append(0, k[start : start + n], v[start : start + n])
        start += n
    return cache


def chunking(backend: Backend) -> None:
    """17 tokens as 17, 16 + 1, seventeen singles, 3 + 5 + 9: one state, one output."""
    spec = turbo(head_dim=128)
    seen = set()
    for chunks in ([17], [16, 1], [1] * 17, [3, 5, 9]):
        with _chunked(backend, spec, chunks) as cache:
            q = query(spec)
            seen.add((cache.dump(), cache.scores(0, q).tobytes(), cache.attend(0, q).tobytes()))
    expect(len(seen) == 1, f"{len(seen)} different states")


def spare_memory(backend: Backend) -> None:
    """What reset, truncation and page reuse leave behind never shows."""
    spec = turbo(sinks=2, window=5)
    huge = np.full((40, 2, 64), 65504, np.float32)
    with backend.prepare(spec) as used, filled(backend, spec, 33) as fresh:
        used.append(0, huge, -huge)
        used.truncate(0)
        used.append(0, huge[:9], huge[:9])
        used.reset()
        used.append(0, *kv(spec, 33))
        q = query(spec)
        expect(used.dump() == fresh.dump(), "the dump differs from a new cache's")
        expect(same(used.attend(0, q), fresh.attend(0, q)), "the output differs")


def reset_is_new(backend: Backend) -> None:
    """Reset equals a new cache byte for byte."""
    spec = turbo(key_centre="frozen", value_centre="frozen", sinks=1)
    with filled(backend, spec, 50) as cache, backend.prepare(spec) as new:
        cache.reset()
        expect(cache.length == 0, f"length {cache.length} after reset")
        expect(cache.dump() == new.dump(), "the dump differs from a new cache's")


def empty(backend: Backend) -> None:
    """An empty cache has no pages, refuses to attend, and survives dump and restore."""
    spec = turbo()
    with backend.prepare(spec) as cache:
        expect(cache.length == 0 and cache.pages(0) == [], "an empty cache holds something")
        expect_refusal(cache, StateError, "attend on empty", lambda: cache.attend(0, query(spec)))
        expect_refusal(cache, StateError, "scores on empty", lambda: cache.scores(0, query(spec)))
        cache.append(0, *kv(spec, 0))
        expect(cache.length == 0, "an append of nothing adds tokens")
        cache.truncate(0)
        with backend.restore(spec, cache.dump()) as restored, filled(backend, spec, 18) as fresh:
            restored.append(0, *kv(spec, 18))
            expect(restored.dump() == fresh.dump(), "a restored empty cache goes on otherwise")


def truncation(backend: Backend) -> None:
    """Truncate, then append: equal to a new cache of the surviving tokens, or refused."""
    spec = turbo(sinks=2, window=4)
    k, v = kv(spec, 80)
    more = kv(spec, 20, seed=9)
    allowed = 0
    for n in range(45, -1, -1):
        with backend.prepare(spec) as cache, backend.prepare(spec) as fresh:
            cache.append(0, k[:45], v[:45])
            sealed = spec.layer(0).sealed
            legal = n in (45, 2 + 16 * sealed(n)) or n <= 2 or sealed(n) == sealed(45)
            if not legal:
                error = expect_refusal(cache, TruncateError, f"truncate to {n}", _cut(cache, n))
                near = getattr(error, "allowed", ())
                expect(bool(near), f"truncate to {n}: the refusal names no allowed length")
                continue
            allowed += 1
            cache.truncate(n)
            fresh.append(0, k[:n], v[:n])
            expect(cache.dump() == fresh.dump(), f"truncated to {n}: another state")
            cache.append(0, *more)
            fresh.append(0, *more)
            expect(cache.dump() == fresh.dump(), f"truncated to {n}, then appended: another state")
    expect(allowed >= 5, f"only {allowed} lengths could be reached")


def _cut(cache: Cache, n: int) -> Callable[[], None]:
    return lambda: cache.truncate(n)


def forks(backend: Backend) -> None:
    """Two forks go different ways; the parent's bytes never change, and it may close first."""
    spec = turbo(window=7, key_centre="frozen")
    parent = filled(backend, spec, 40)
    before = parent.dump()
    one, two = parent.fork(), parent.fork()
    one.append(0, *kv(spec, 30, seed=5))
    expect(parent.dump() == before, "the parent changed when a fork grew")
    expect(two.dump() == before, "a fork changed when another grew")
    two.truncate(39)
    two.append(0, *kv(spec, 30, seed=6))
    expect(parent.dump() == before, "the parent changed")
    kept = one.dump()
    parent.close()
    two.close()
    expect(one.dump() == kept, "a fork changed when its parent closed")
    one.close()


def neighbours(backend: Backend) -> None:
    """Two sequences and two layers, fed in turn: no cross-talk."""
    spec = turbo(layers=2)
    caches = [backend.prepare(spec) for _ in range(2)]
    data = [[kv(spec, 40, seed=10 * s + layer) for layer in range(2)] for s in range(2)]
    for start in range(0, 40, 5):
        for s, cache in enumerate(caches):
            for layer in range(2):
                k, v = data[s][layer]
                cache.append(layer, k[start : start + 5], v[start : start + 5])
    for s, cache in enumerate(caches):
        with backend.prepare(spec) as alone:
            for layer in range(2):
                alone.append(layer, *data[s][layer])
            expect(cache.dump() == alone.dump(), f"sequence {s} differs from the same one alone")
        for layer in range(2):
            with backend.prepare(turbo()) as single:
                single.append(0, *data[s][layer])
                q = query(spec, seed=s)
                expect(
                    same(cache.attend(layer, q), single.attend(0, q))
                    and same(cache.scores(layer, q), single.scores(0, q)),
                    f"sequence {s}: layer {layer} attends otherwise than in a cache of one layer",
                )
        cache.close()


def span(backend: Backend) -> None:
    """Only the newest `span` tokens and the sinks are attended, exactly; old pages go."""
    for sinks in (0, 2):
        spec = plain(span=4, sinks=sinks)
        k, v = kv(spec, 200)
        sizes = []
        with backend.prepare(spec) as cache:
            for n in range(200):
                cache.append(0, k[n : n + 1], v[n : n + 1])
                if n in (9, 77, 199):
                    q = query(spec)
                    length = n + 1
                    args = (spec.effective_softmax_scale, 4, sinks, length)
                    exact = attend64(k[:length].astype(float), v[:length].astype(float), q, *args)
                    off = np.abs(cache.attend(0, q) - exact).max()
                    expect(off < 1e-5, f"{length} tokens, {sinks} sinks: off by {off}")
                    masked = int(np.isneginf(cache.scores(0, q)[0]).sum())
                    wanted = max(0, length - 4 - sinks)
                    expect(masked == wanted, f"{masked} tokens masked, expected {wanted}")
                if n % 16 == 15:
                    sizes.append(len(cache.dump()))
        expect(max(sizes[3:]) <= sizes[3], f"the dump grows with the sequence: {sizes}")


def window(backend: Backend) -> None:
    """Sinks and the newest `window` tokens, at least, are scored as fp16; aged ones from codes."""
    spec = turbo(keys="turbo:2", sinks=2, window=20)
    k, v = kv(spec, 70)
    q = query(spec)
    with backend.prepare(spec) as cache:
        for n in range(1, 71):
            cache.append(0, k[n - 1 : n], v[n - 1 : n])
            exact = scores64(k[:n].astype(float), q, spec.effective_softmax_scale, 0, 0, n)
            off = np.abs(cache.scores(0, q) - exact).max(axis=0)
            aged = slice(2, 2 + 16 * spec.layer(0).sealed(n))
            expect((off[aged] > 1e-5).all(), f"{n} tokens: aged keys are scored exactly")
            off[aged] = 0
            worst = int(off.argmax())
            expect(off.max() < 1e-5, f"{n} tokens: token {worst} is off by {off.max()}")


def closed(backend: Backend) -> None:
    """A closed cache refuses by name; closing twice is harmless."""
    cache = filled(backend, turbo(), 20)
    cache.close()
    cache.close()
    for what, call in (
        ("attend", lambda: cache.attend(0, query(turbo()))),
        ("append", lambda: cache.append(0, *kv(turbo(), 1))),
        ("dump", cache.dump),
        ("fork", cache.fork),
    ):
        try:
            call()
        except StateError:
            continue
        expect(False, f"{what} on a closed cache was accepted")


def shrinks(backend: Backend) -> None:
    """A quantized cache holds fewer bytes than fp16 keys and values would take."""
    spec = turbo(keys="turbo:3", values="turbo:3", page_tokens=64, head_dim=128, kv_heads=4)
    with filled(backend, spec, 1024) as cache:
        # Memory that is reserved for later is not counted: a linear memory starts with megabytes.
        held = sum(cache.nbytes.values()) - cache.nbytes["reserved"]
        fp16 = 2 * 2 * 1024 * 4 * 128
        expect(held < 0.75 * fp16, f"holds {held} bytes, fp16 would take {fp16}")
        expect(cache.counters.pages_encoded == 16, f"encoded {cache.counters.pages_encoded} pages")


CASES: Final[Mapping[str, Callable[[Backend], None]]] = {
    "chunking": chunking,
    "spare memory": spare_memory,
    "reset": reset_is_new,
    "empty caches": empty,
    "truncation": truncation,
    "forks": forks,
    "neighbours": neighbours,
    "span": span,
    "window": window,
    "closed": closed,
    "shrinks": shrinks,
}
