"""Fresh caches: prefill, the first step after it, and what memory costs on the way."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Final

import kvassay
from kvassay.protocol import Backend, FloatArray
from kvassay.records import Record

from .truth import Checked, check
from .turns import evidence
from .work import Owner, Shape, owner, processor_time, tokens_of

_TIMES: Final = 5
_LEAST: Final = 3
_METHODS: Final[Mapping[str, str]] = {
    "prefill": "append of all tokens in one call to a new cache, then attention of the last 16",
    "first_decode": "append of one token and attention of one query, right after the prefill",
    "allocator": "append of all tokens to a new cache less the same after a reset: first use of "
    "its memory",
}


def measure(
    backend: str,
    variant: str,
    presets: Sequence[str],
    tokens: int,
    shape: dict[str, int],
    seconds: float,
) -> list[Record]:
    """Times of a few fresh caches of every preset, by turns."""
    loaded = kvassay.load(backend, variant)
    whose = owner(backend, variant, tokens, Shape(**shape), loaded)
    found: dict[str, list[dict[str, float]]] = {preset: [] for preset in presets}
    computed: dict[str, list[FloatArray]] = {preset: [] for preset in presets}
    began = time.monotonic()
    for number in range(_TIMES):
        if number >= _LEAST and time.monotonic() - began > seconds:
            break
        for preset in presets:
            times, out = _one(loaded, whose, preset)
            found[preset].append(times)
            computed[preset].append(out)
    checked = {
        preset: check(loaded, whose, preset, *outputs) for preset, outputs in computed.items()
    }
    return [
        _record(whose, preset, name, [one[name] for one in runs], checked[preset])
        for preset, runs in found.items()
        for name in _METHODS
    ]


def _one(loaded: Backend, whose: Owner, preset: str) -> tuple[dict[str, float], FloatArray]:
    """Nanoseconds of one cache's life, and what attention returned after the prefill."""
    k, v, q = tokens_of(whose.shape, whose.tokens)
    with loaded.prepare(whose.shape.spec(preset)) as cache:
        start = processor_time()
        cache.append(0, k, v)
        appended = processor_time()
        out = cache.attend(0, q)
        prefilled = processor_time()
        cache.append(0, k[:1], v[:1])
        cache.attend(0, q[0])
        decoded = processor_time()
        cache.reset()
        again = processor_time()
        cache.append(0, k, v)
        end = processor_time()
    times: dict[str, float] = {
        "prefill": prefilled - start,
        "first_decode": decoded - prefilled,
        "allocator": (appended - start) - (end - again),
    }
    return times, out


def _record(
    whose: Owner, preset: str, name: str, values: Sequence[float], checked: Checked
) -> Record:
    samples = {} if checked.wrong else evidence(values)
    detail = {**checked.detail, **samples, "method": _METHODS[name]}
    value = checked.value(statistics.median(values) / 1e3)
    return whose.record(name, preset, value, "us", checked.count(len(values)), detail)
