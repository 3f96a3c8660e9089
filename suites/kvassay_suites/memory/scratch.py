"""Working memory of attention at a short and a long context. Runs in a process of its own."""

from __future__ import annotations

from typing import Any, Final

import kvassay
from kvassay.protocol import Backend, Cache

from .load import Tokens, attend_all, fill, long_cache, preset_spec
from .process import Probe

_QUERIES: Final = 2


def measure(
    backend: str, variant: str, preset: str, shape: dict[str, Any], lengths: list[int], append: bool
) -> list[dict[str, Any]]:
    """For each length: scratch and staging billed, and how far attention rises above rest.

    `append` encodes every token instead of filling the cache from a dump whose pages repeat.
    """
    loaded = kvassay.load(backend, variant)
    spec = preset_spec(preset, shape)
    with long_cache(loaded, spec, lengths[0]) as warm:
        attend_all(warm, Tokens.of(spec, 1).q)
    found = []
    for length in lengths:
        with _filled(loaded, spec, length, append) as cache:
            found.append({"tokens": length, **_figures(cache)})
    return found


def _filled(backend: Backend, spec: kvassay.Spec, length: int, append: bool) -> Cache:
    if not append:
        return long_cache(backend, spec, length)
    cache = backend.prepare(spec)
    fill(cache, Tokens.of(spec, length), length)
    return cache


def _figures(cache: Cache) -> dict[str, Any]:
    given = Tokens.of(cache.spec, 1, _QUERIES)
    cache.attend(0, given.q)
    probe = Probe(trace=True)

    def attend() -> None:
        cache.attend(0, given.q[0])
        cache.attend(0, given.q)

    peak = probe.peak_of(attend)
    cache.append(0, given.k, given.v)
    probe.stop()
    billed = cache.nbytes
    return {
        "scratch": billed["scratch"],
        "staging": billed["staging"],
        "traced": peak.traced_rise,
        "resident": peak.resident_rise,
    }
