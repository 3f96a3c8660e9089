"""Peaks while a cache is filled and used. Runs in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import kvassay
from kvassay.protocol import Cache

from .load import Tokens, fill, preset_spec, warm_up
from .process import Peak, Probe

DECODE_STEPS: Final = 8
_QUERIES: Final = 4


def measure(
    backend: str,
    variant: str,
    preset: str,
    shape: dict[str, Any],
    tokens: int,
    chunk: int,
    trace: bool,
) -> dict[str, dict[str, Any]]:
    """Total bytes at their highest, above an idle process, in each phase.

    Phases: prefill in chunks of `chunk` tokens, decode, attend. `counted` is what Python traced
    (with `trace`) and what the cache itself bills beyond that; `resident` is what the kernel saw.
    """
    loaded = kvassay.load(backend, variant)
    spec = preset_spec(preset, shape)
    given = Tokens.of(spec, tokens, _QUERIES)
    warm_up(loaded, spec)
    probe = Probe(trace)
    with loaded.prepare(spec) as cache:
        phases: tuple[tuple[str, Callable[[], None]], ...] = (
            ("prefill", lambda: fill(cache, given, chunk)),
            ("decode", lambda: _decode(cache, given)),
            ("attend", lambda: _attend(cache, given)),
        )
        found = {}
        for name, work in phases:
            peak = probe.peak_of(work)
            found[name] = {
                "counted": _counted(probe, cache, peak),
                "resident": peak.resident,
                **_bill(probe, cache),
            }
    return found


def _decode(cache: Cache, given: Tokens) -> None:
    """Tokens one by one, a query after each."""
    for step in range(DECODE_STEPS):
        for layer in range(cache.spec.layers):
            cache.append(layer, given.k[step : step + 1], given.v[step : step + 1])
            cache.attend(layer, given.q[0])


def _attend(cache: Cache, given: Tokens) -> None:
    """Several queries at once, on every layer."""
    for layer in range(cache.spec.layers):
        cache.attend(layer, given.q)


def _bill(probe: Probe, cache: Cache) -> dict[str, Any]:
    """The bill after a phase, by part, and what the allocator holds beyond it."""
    parts = dict(cache.nbytes)
    malloc = probe.held().get("malloc")
    billed = sum(parts.values())
    overhead = None if malloc is None else malloc - billed
    return {"billed": billed, "parts": parts, "allocator_overhead": overhead}


def _counted(probe: Probe, cache: Cache, peak: Peak) -> int | None:
    """The traced peak and, where the cache lies outside of what Python traces, its own."""
    if peak.traced is None:
        return None
    own = max(cache.counters.peak_bytes, sum(cache.nbytes.values()))
    return peak.traced + max(0, own - max(0, probe.held()["traced"]))
