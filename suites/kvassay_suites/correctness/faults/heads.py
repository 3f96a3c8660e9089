"""Faults 28 and 29: which head reads which, and sequences that must not touch."""

from __future__ import annotations

import threading
from typing import Final

import numpy as np

import kvassay
from kvassay.protocol import Backend, Cache

from ...common.specs import ONE_LAYER
from ...oracle import decode_cache, scores64
from .case import PAIRS, Findings, Subject, case, kv, queries, relative, same, seen, small

#: Query heads, KV heads.
LAYOUTS: Final = ((48, 2), (40, 2), (80, 4), (28, 4), (9, 3), (8, 1), (12, 12))


@case(28, "query heads on wrong KV heads", ONE_LAYER)
def head_mapping(find: Findings, subject: Subject) -> None:
    """(48,2) (40,2) (80,4) (28,4) (9,3) (8,1) (12,12); a value row is its KV head's number.

    Expected: floor(h Hkv / Hq), for values and keys.
    """
    for query_heads, kv_heads in LAYOUTS:
        for keys in ("fp16", "turbo:4", "kivi:4"):
            spec = small(query_heads=query_heads, kv_heads=kv_heads, keys=keys, values="fp16")
            if not find.executes(subject.backend, spec):
                continue
            k, _ = kv(spec, 20)
            v = np.broadcast_to(np.arange(kv_heads, dtype=np.float32)[:, None], k.shape).copy()
            q = queries(spec, 3)
            with subject.backend.prepare(spec) as cache:
                cache.append(0, k, v)
                found = np.stack([*cache.attend(0, q), cache.attend(0, q[0])])
                scores, state = cache.scores(0, q[0]), decode_cache(cache.dump())[0]
            expected = np.arange(query_heads) * kv_heads // query_heads
            who = f"{query_heads} query heads on {kv_heads}, keys {keys}"
            off = np.abs(found - expected[:, None]).max()
            find.holds(off < 1e-3, f"{who}: values of the right head", f"off by {off}")
            off = relative(scores, scores64(state.k, q[0], state.softmax_scale, 0, 0, 20))
            find.holds(off < 0.04, f"{who}: keys of the right head", f"off by {off}")


@case(29, "cross-talk between sequences", ONE_LAYER)
def cross_talk(find: Findings, subject: Subject) -> None:
    """Two sequences of two layers in turn, and from two threads.

    Expected: as if alone, to the bit.
    """
    for keys, values in PAIRS:
        spec = small(keys=keys, values=values, layers=2, window=5, key_centre="frozen")
        if not find.executes(subject.backend, spec):
            continue
        alone = []
        for seed in (1, 2):
            with subject.backend.prepare(spec) as cache:
                _feed(cache, seed)
                alone.append(seen(cache, queries(spec, 3)))
        for way in (_in_turn, _in_threads):
            for number, cache in enumerate(way(subject.backend, spec)):
                who = f"{keys}/{values} {way.__name__.strip('_').replace('_', ' ')}, {number + 1}"
                same(find, seen(cache, queries(spec, 3)), alone[number], who)
                cache.close()


def _feed(cache: Cache, seed: int, parts: range = range(0, 60, 5)) -> None:
    for layer in range(cache.spec.layers):
        k, v = kv(cache.spec, 60, seed=10 * seed + layer)
        for start in parts:
            cache.append(layer, k[start : start + 5], v[start : start + 5])


def _in_turn(backend: Backend, spec: kvassay.Spec) -> list[Cache]:
    caches = [backend.prepare(spec) for _ in range(2)]
    for start in range(0, 60, 5):
        for seed, cache in enumerate(caches, 1):
            _feed(cache, seed, range(start, start + 5, 5))
            cache.attend(0, queries(spec, 1)[0])
    return caches


def _in_threads(backend: Backend, spec: kvassay.Spec) -> list[Cache]:
    caches = [backend.prepare(spec, threads=2) for _ in range(2)]
    workers = [
        threading.Thread(target=_feed, args=(cache, seed)) for seed, cache in enumerate(caches, 1)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return caches
