"""Memory over tokens: billed by part, held by evidence, peaks of use. Runs in a fresh process."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

import kvassay
from kvassay.protocol import Backend, Cache

from .load import Tokens, fill, long_cache, preset_spec, warm_up
from .process import Probe

#: Tokens from which on use is measured: below, the suite measures peaks of prefill and use anyway.
LONG: Final = 16384
#: Tokens of an append, where a cache is not filled from a dump.
_CHUNK: Final = 4096


def measure(
    backend: str, variant: str, preset: str, shape: dict[str, Any], lengths: list[int], append: bool
) -> dict[str, Any]:
    """Caches of these lengths side by side, made one after the other and closed one by one.

    `points`: what is held and billed by all of them together after each step. `caches`: for each
    length its own bill, and from `LONG` on the highest resident bytes above rest while it is used,
    None where the system does not tell. `append` encodes every token instead of filling caches
    from a dump whose pages repeat.
    """
    loaded = kvassay.load(backend, variant)
    spec = preset_spec(preset, shape)
    given = Tokens.of(spec, 16)
    warm_up(loaded, spec)
    _made(loaded, spec, lengths[0], append).close()
    probe = Probe()
    caches: list[Cache] = []
    points, found = [_point(probe, caches)], []
    for length in lengths:
        caches.append(_made(loaded, spec, length, append))
        points.append(_point(probe, caches))
        own = caches[-1]
        rise = probe.peak_of(partial(_use, own, given)).resident_rise if length >= LONG else None
        found.append({"tokens": length, "billed": dict(own.nbytes), "rise": rise})
    while caches:
        caches.pop().close()
        points.append(_point(probe, caches))
    return {"points": points, "caches": found}


def _use(cache: Cache, given: Tokens) -> None:
    """One step of decoding."""
    cache.append(0, given.k[:1], given.v[:1])
    cache.attend(0, given.q[0])


def _made(backend: Backend, spec: kvassay.Spec, length: int, append: bool) -> Cache:
    if not append:
        return long_cache(backend, spec, length)
    cache = backend.prepare(spec)
    fill(cache, Tokens.of(spec, length), _CHUNK)
    return cache


def _point(probe: Probe, caches: list[Cache]) -> dict[str, Any]:
    """Bytes in use by all caches, as billed, and what evidence shows."""
    billed = [cache.nbytes for cache in caches]
    used = sum(sum(parts.values()) - parts["reserved"] for parts in billed)
    reserved = sum(parts["reserved"] for parts in billed)
    return {"used": used, "reserved": reserved, "held": probe.held()}


def slope(points: list[dict[str, Any]]) -> float:
    """Private bytes over used bytes: the slope of the straight line closest to the points."""
    used = [float(point["used"]) for point in points]
    private = [float(point["held"]["private"]) for point in points]
    return float(np.polyfit(used, private, 1)[0])
