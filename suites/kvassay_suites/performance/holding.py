"""Bytes: packed payload, scratch, peak, growth of a linear memory; and the roofline's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import kvassay
from kvassay.protocol import Backend
from kvassay.records import Record

from ..common.process import call_fresh
from ..wasm.linear import load_linear
from .truth import Checked, check
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
        parts, checked = _parts(loaded, whose, preset)
        for name, keys in (("payload_bytes", PAYLOAD), ("scratch_bytes", SCRATCH)):
            value = checked.value(sum(parts.get(key, 0) for key in keys))
            said = f"what the cache bills as {', '.join(keys)}"
            detail = {**checked.detail, "parts": parts, "method": said}
            records.append(whose.record(name, preset, value, "bytes", checked.count(1), detail))
        if linear:
            records += _in_linear_memory(loaded, whose, preset)
        else:
            records.append(_peak(whose, preset, checked))
    return records


def _parts(loaded: Backend, whose: Owner, preset: str) -> tuple[Mapping[str, int], Checked]:
    """Bytes of a cache that was filled and used, and what it computed."""
    k, v, q = tokens_of(whose.shape, whose.tokens)
    with filled(loaded, whose.shape.spec(preset), k, v) as cache:
        checked = check(loaded, whose, preset, cache.attend(0, q[0]))
        return dict(cache.nbytes), checked


def _peak(whose: Owner, preset: str, checked: Checked) -> Record:
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
    said = "resident memory of a fresh process, above its start"
    detail = {**checked.detail, "phases": phases, "method": said}
    peak = checked.value(max(known, default=0))
    return whose.record("peak_bytes", preset, peak, "bytes", checked.count(len(known)), detail)


def _in_linear_memory(loaded: Backend, whose: Owner, preset: str) -> list[Record]:
    """Growths and pages of a memory in which one cache was filled and used."""
    one = load_linear(whose.backend, whose.variant).in_one_memory()
    k, v, q = tokens_of(whose.shape, whose.tokens)
    with one.prepare(whose.shape.spec(preset)) as cache:
        cache.append(0, k, v)
        checked = check(loaded, whose, preset, cache.attend(0, q[0]))
    use = one.memory_use
    said = "a linear memory in which one cache was filled and used"
    detail = {
        **checked.detail,
        **{"pages": use.pages, "high_water_bytes": use.high_water, "method": said},
    }
    figures = (("growth_events", use.growths, "growths"), ("peak_bytes", use.pages << 16, "bytes"))
    return [
        whose.record(name, preset, checked.value(value), unit, checked.count(1), detail)
        for name, value, unit in figures
    ]
