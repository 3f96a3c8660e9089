"""From measurements in fresh processes to records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import kvassay
from kvassay.costs import Costs
from kvassay.records import Record

from ..common import ONE_LAYER, record
from ..common_process import call_fresh
from . import BASELINE
from .load import preset_spec
from .process import ENVIRONMENT, excess, growth, tolerance

#: Shapes in which the cache outweighs what a call works with, yet is made in seconds.
HELD_SHAPE: Final = {"kv_heads": 4, "query_heads": 8, "head_dim": 128}
SESSION_SHAPE: Final = {
    **{"layers": 1, "kv_heads": 1, "query_heads": 2, "head_dim": 64},
    **{"page_tokens": 16, "window": 16},
}
SCRATCH_SHAPE: Final = {"layers": 1, "kv_heads": 1, "query_heads": 16, "head_dim": 64}
PEAK_SHAPE: Final = {"kv_heads": 2, "query_heads": 4, "head_dim": 64}
#: Layers times tokens of a peak: 2 MiB of fp16.
PEAK_CELLS: Final = 4096
#: A fatter fp16 cache than this is no baseline: what bloats a backend bloats both, and the ratio of
#: the two would look well.
BASELINE_SLACK: Final = 1.25
#: Parts of the bill that a spec alone fixes; the rest is a backend's own affair.
PAYLOAD: Final = ("codes", "scales", "means", "headers", "residual", "sinks")
#: Resident memory moves by this much without anything being kept (measured: docs/memory.md).
RESIDENT_NOISE: Final = 2 << 20


def held(
    backend: str, variant: str, preset: str, layers: int, tokens: int, sessions: int
) -> list[Record]:
    """Bytes billed against bytes held, no decoded shadow, nothing retained."""
    shape = {**HELD_SHAPE, "layers": layers}
    moments = _measure(
        "held", backend, variant, preset,
        shape=shape, tokens=tokens, session_shape=SESSION_SHAPE, sessions=sessions,
    )  # fmt: skip
    spec = preset_spec(preset, shape)
    unbilled = _unbilled(moments["appended"])
    shadow = max(_unbilled(moments["attended"]), _beyond_format(spec, tokens, moments["attended"]))
    kept = {name: _unbilled(moments[name]) for name in ("reset", "closed")}
    kept["sessions"] = growth(moments["sessions"]["held"])
    kept["reset"] = max(kept["reset"], _not_new(moments["new"], moments["reset"]))
    where = {"tokens": tokens, "shape": shape, "fp16_bytes": Costs.of(spec).fp16(tokens)}
    who = backend, variant, preset
    return [
        _record("unbilled_bytes", *who, unbilled, _kinds(moments, "appended"),
                {**where, "appended": moments["appended"]}),
        _record("shadow_bytes", *who, shadow, _kinds(moments, "attended") + 1,
                {**where, "attended": moments["attended"],
                 "bytes_of_the_format": Costs.of(spec).held(tokens)}),
        _record("retained_bytes", *who, max(kept.values()),
                sum(_kinds(moments, name) for name in kept),
                {"sessions": sessions, "beyond_tolerance": kept,
                 **{name: moments[name] for name in ("new", *kept)}}),
    ]  # fmt: skip


def scratch(
    backend: str, variant: str, preset: str, lengths: Sequence[int], append: bool
) -> list[Record]:
    """Growth of working memory from the first length to the last."""
    found = _measure(
        *("scratch", backend, variant, preset),
        shape=SCRATCH_SHAPE,
        lengths=list(lengths),
        append=append,
    )
    first, last = found[0], found[-1]
    billed = sum(last[part] - first[part] for part in ("scratch", "staging", "traced"))
    grown, comparisons = max(0, billed), 3
    if last["resident"] is not None and first["resident"] is not None:
        grown = max(grown, last["resident"] - first["resident"] - RESIDENT_NOISE)
        comparisons += 1
    detail = {"lengths": found, "resident_noise": RESIDENT_NOISE, "encoded": append}
    return [_record("scratch_growth", backend, variant, preset, grown, comparisons, detail)]


def peaks(
    backend: str, variant: str, presets: Sequence[str], tokens: int, chunk: int, trace: bool
) -> list[Record]:
    """Highest total of each phase over that of the same backend's fp16 cache."""
    shape = {**PEAK_SHAPE, "layers": PEAK_CELLS // tokens if tokens < PEAK_CELLS else 1}
    given = {"shape": shape, "tokens": tokens, "chunk": chunk, "trace": trace}
    plain = _baseline(backend, variant, given)
    records = []
    for preset in presets:
        phases = _measure("peak", backend, variant, preset, **given)
        ratios = _ratios(phases, plain)
        subject = f"{tokens} tokens " + ("at once" if chunk == tokens else f"in chunks of {chunk}")
        detail = {**given, "ratios": ratios, "phases": phases, "fp16": plain}
        records.append(
            _record(
                *("peak_ratio", backend, variant, preset, max(ratios.values()), len(ratios)),
                detail,
                unit="of the fp16 peak",
                subject=subject,
            )
        )
    return records


def _baseline(backend: str, variant: str, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The same phases as fp16, at most `BASELINE_SLACK` times the plain bytes of the tokens.

    A backend without fp16 is measured against those plain bytes alone.
    """
    spec = preset_spec(BASELINE, given["shape"])
    least = Costs.of(spec).fp16(given["tokens"])
    if not kvassay.load(backend, variant).supports(spec):
        figures = ("counted", "resident")
        return {phase: dict.fromkeys(figures, least) for phase in ("prefill", "decode", "attend")}
    found = _measure("peak", backend, variant, BASELINE, **given)
    most = int(BASELINE_SLACK * least)
    return {
        phase: {kind: None if size is None else min(size, most) for kind, size in figures.items()}
        for phase, figures in found.items()
    }


def _ratios(
    phases: Mapping[str, Mapping[str, Any]], plain: Mapping[str, Mapping[str, Any]]
) -> dict[str, float]:
    return {
        f"{phase} {kind}": figures[kind] / plain[phase][kind]
        for phase, figures in phases.items()
        for kind in ("counted", "resident")
        if figures[kind] is not None and plain[phase][kind] is not None
    }


def _measure(module: str, backend: str, variant: str, preset: str, **arguments: Any) -> Any:
    return call_fresh(
        f"kvassay_suites.memory.{module}:measure",
        {"backend": backend, "variant": variant, "preset": preset, **arguments},
        **ENVIRONMENT,
    )


def _bill(moment: Mapping[str, Any]) -> int:
    return sum(int(size) for size in moment["billed"].values())


def _unbilled(moment: Mapping[str, Any]) -> int:
    return excess(moment["held"], _bill(moment))


def _kinds(moments: Mapping[str, Any], name: str) -> int:
    return len(moments[name]["held"])


def _beyond_format(spec: kvassay.Spec, tokens: int, moment: Mapping[str, Any]) -> int:
    """Bytes billed as the cache's content beyond what the spec's pages and fp16 tokens take."""
    billed = sum(int(moment["billed"][part]) for part in PAYLOAD)
    format_ = Costs.of(spec).held(tokens)
    return max(0, billed - format_ - tolerance("malloc", format_))


def _not_new(new: Mapping[str, Any], reset: Mapping[str, Any]) -> int:
    """Bytes billed after a reset for anything but reserved memory, beyond those of a new cache.

    Scratch is left out: it is kept between calls and only has to be billed.
    """
    return sum(max(0, reset["billed"][part] - new["billed"][part]) for part in PAYLOAD)


def _record(
    check: str,
    backend: str,
    variant: str,
    preset: str,
    value: float,
    comparisons: int,
    detail: Mapping[str, Any],
    unit: str = "bytes",
    subject: str = "",
) -> Record:
    return record(
        f"memory.{check}",
        ONE_LAYER,
        backend,
        variant,
        value,
        unit,
        comparisons,
        subject=subject,
        preset=preset,
        detail=detail,
    )
