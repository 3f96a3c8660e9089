"""Bytes: packed payload, scratch, peak, growth of a linear memory; and the roofline's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import kvassay
from kvassay.protocol import Backend
from kvassay.records import Record

from ..common_process import call_fresh
from ..wasm.linear import load_linear
from .work import Owner, Shape, filled, owner, tokens_of

PAYLOAD: Final = ("codes", "scales", "means", "headers")
SCRATCH: Final = ("scratch", "staging")
_PEAK: Final = "kvassay_suites.memory.peak:measure"


def measure(
    backend: str, variant: str, presets: Sequence[str], tokens: int, shape: dict[str, int]
) -> list[Record]:
    """Bytes of every preset at one length, as the cache bills them and as the system saw them."""
    loaded = kvassay.load(backend, variant)
    whose = owner(backend, variant, tokens, Shape(**shape), loaded)
    linear = bool(getattr(loaded, "evidence", {}).get("linear_memory"))
    records = []
    for preset in presets:
        parts = _parts(loaded, whose, preset)
        detail = {"parts": parts}
        for name, keys in (("payload_bytes", PAYLOAD), ("scratch_bytes", SCRATCH)):
            value = sum(parts.get(key, 0) for key in keys)
            records.append(whose.record(name, preset, value, "bytes", 1, detail))
        records += _in_linear_memory(whose, preset) if linear else [_peak(whose, preset)]
    return records


def _parts(loaded: Backend, whose: Owner, preset: str) -> Mapping[str, int]:
    k, v, q = tokens_of(whose.shape, whose.tokens)
    with filled(loaded, whose.shape.spec(preset), k, v) as cache:
        cache.attend(0, q[0])
        return dict(cache.nbytes)


def _peak(whose: Owner, preset: str) -> Record:
    """Resident memory at its highest above an idle process, in a process of its own."""
    arguments: dict[str, Any] = {
        "backend": whose.backend,
        "variant": whose.variant,
        "preset": preset,
        "shape": {"layers": 1, **asdict(whose.shape)},
        "tokens": whose.tokens,
        "chunk": whose.tokens,
        "trace": False,
    }
    phases = call_fresh(_PEAK, arguments)
    resident = [found["resident"] for found in phases.values()]
    known = [value for value in resident if value is not None]
    detail = {"phases": phases, "method": "resident memory of a fresh process, above its start"}
    return whose.record("peak_bytes", preset, max(known, default=0), "bytes", len(known), detail)


def _in_linear_memory(whose: Owner, preset: str) -> list[Record]:
    """Growths and pages of a memory in which one cache was filled and used."""
    one = load_linear(whose.backend, whose.variant).in_one_memory()
    k, v, q = tokens_of(whose.shape, whose.tokens)
    with one.prepare(whose.shape.spec(preset)) as cache:
        cache.append(0, k, v)
        cache.attend(0, q[0])
    use = one.memory_use
    detail = {"pages": use.pages, "high_water_bytes": use.high_water, "method": "linear memory"}
    return [
        whose.record("growth_events", preset, use.growths, "growths", 1, detail),
        whose.record("peak_bytes", preset, use.pages * 65536, "bytes", 1, detail),
    ]
