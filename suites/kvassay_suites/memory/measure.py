"""From measurements in fresh processes to records."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import kvassay
from kvassay.page.costs import Costs
from kvassay.protocol import Backend
from kvassay.records import Record

from ..common.process import call_fresh
from ..common.specs import ONE_LAYER, record
from . import BASELINE
from .growth import LONG, slope
from .load import Tokens, fill, preset_spec
from .process import ENVIRONMENT, excess, tolerance
from .process import growth as growth_of

#: Shapes in which the cache outweighs what a call works with, yet is made in seconds.
HELD_SHAPE: Final = {"kv_heads": 4, "query_heads": 8, "head_dim": 128}
SESSION_SHAPE: Final = {
    **{"layers": 1, "kv_heads": 1, "query_heads": 2, "head_dim": 64},
    **{"page_tokens": 16, "window": 16},
}
SCRATCH_SHAPE: Final = {"layers": 1, "kv_heads": 1, "query_heads": 16, "head_dim": 64}
PEAK_SHAPE: Final = {"kv_heads": 2, "query_heads": 4, "head_dim": 64}
#: A long context in which a cache outweighs everything else: at 65,536 tokens 128 MiB of fp16.
GROWTH_SHAPE: Final = {"layers": 1, "kv_heads": 4, "query_heads": 8, "head_dim": 128}
#: MiB of fp16 of a peak in depths other than full.
SMALL: Final = 2
#: Seconds that filling a large cache may take.
FILL_SECONDS: Final = 60.0
#: A fatter fp16 cache than this is no baseline: what bloats a backend bloats both, and the ratio of
#: the two would look well.
BASELINE_SLACK: Final = 1.25
#: What is said of each phase's peak.
FIGURES: Final = ("counted", "resident")
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
    kept["sessions"] = growth_of(moments["sessions"]["held"])
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
    backend: str,
    variant: str,
    presets: Sequence[str],
    tokens: int,
    chunk: int,
    mebibytes: int,
    trace: bool,
) -> list[Record]:
    """Highest total of each phase over that of the same backend's fp16 cache of about so many MiB;
    of fewer where the backend is too slow to fill it."""
    shape = peak_shape(backend, variant, tokens, mebibytes)
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


def peak_shape(backend: str, variant: str, tokens: int, mebibytes: int) -> dict[str, Any]:
    """Layers such that fp16 takes so many MiB, less if filling them would take too long."""
    heads = PEAK_SHAPE if mebibytes <= SMALL else GROWTH_SHAPE
    each = Costs.of(preset_spec(BASELINE, {**heads, "layers": 1})).fp16(tokens)
    layers = max(1, (mebibytes << 20) // each)
    if mebibytes > SMALL:
        seconds = tokens * _seconds_a_token(kvassay.load(backend, variant), heads)
        layers = max(1, min(layers, int(FILL_SECONDS / seconds)))
        if layers == 1 and seconds > FILL_SECONDS:
            heads = PEAK_SHAPE
    return {**heads, "layers": layers}


def _seconds_a_token(backend: Backend, heads: Mapping[str, Any]) -> float:
    """Of an append that seals a page, and of the one after it, so that code is warm."""
    spec = preset_spec("turbo", {**heads, "layers": 1})
    if not backend.supports(spec):
        spec = preset_spec(BASELINE, {**heads, "layers": 1})
    layer = spec.layer(0)
    given = Tokens.of(spec, layer.sinks + layer.window + layer.page_tokens)
    with backend.prepare(spec) as cache:
        fill(cache, given, len(given.k))
        began = time.perf_counter()
        cache.append(0, given.k[: layer.page_tokens], given.v[: layer.page_tokens])
        return (time.perf_counter() - began) / layer.page_tokens


def _baseline(backend: str, variant: str, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The same phases as fp16, at most `BASELINE_SLACK` times the plain bytes of the tokens.

    A backend without fp16 is measured against those plain bytes alone.
    """
    spec = preset_spec(BASELINE, given["shape"])
    least = Costs.of(spec).fp16(given["tokens"])
    if not kvassay.load(backend, variant).supports(spec):
        return {phase: dict.fromkeys(FIGURES, least) for phase in ("prefill", "decode", "attend")}
    found = _measure("peak", backend, variant, BASELINE, **given)
    most = int(BASELINE_SLACK * least)
    return {
        phase: {
            kind: None if figures[kind] is None else min(figures[kind], most) for kind in FIGURES
        }
        for phase, figures in found.items()
    }


def _ratios(
    phases: Mapping[str, Mapping[str, Any]], plain: Mapping[str, Mapping[str, Any]]
) -> dict[str, float]:
    return {
        f"{phase} {kind}": figures[kind] / plain[phase][kind]
        for phase, figures in phases.items()
        for kind in FIGURES
        if figures[kind] is not None and plain[phase][kind] is not None
    }


def growth(
    backend: str, variant: str, presets: Sequence[str], lengths: Sequence[int], append: bool
) -> list[Record]:
    """Memory over tokens, from the first length to the last: whether private bytes rise and fall
    with the bytes billed as used, and whether use peaks below fp16."""
    given = {"shape": GROWTH_SHAPE, "lengths": list(lengths), "append": append}
    found = {preset: _measure("growth", backend, variant, preset, **given) for preset in presets}
    records = []
    for preset, measured in found.items():
        who = backend, variant, preset
        points = measured["points"]
        off = abs(slope(points) - 1)
        detail = {**given, "slope": slope(points), **measured}
        records.append(
            _record("rss_slope", *who, off, len(points), detail, unit="relative", subject="slope")
        )
        if preset != BASELINE:
            records += [_held_peak(who, cache) for cache in measured["caches"] if _is_long(cache)]
    return records


def _is_long(cache: Mapping[str, Any]) -> bool:
    return bool(cache["tokens"] >= LONG)


def _held_peak(who: tuple[str, str, str], cache: Mapping[str, Any]) -> Record:
    """What a long cache takes while it is used, over the plain bytes of its tokens as fp16."""
    fp16 = Costs.of(preset_spec(BASELINE, GROWTH_SHAPE)).fp16(cache["tokens"])
    held, rise = sum(cache["billed"].values()), cache["rise"]
    return _record(
        *("peak_ratio", *who, (held + (rise or 0)) / fp16, 1 + (rise is not None)),
        {**cache, "held": held, "fp16": fp16},
        unit="of the fp16 peak",
        subject=f"{cache['tokens']} tokens held, one step",
    )


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
