"""Decode steps of one target at one length: all presets and the fixed loop by turns.

The parts of a step are taken apart by calls that lack them: `scores` scans keys and no values, and
a cache of one short page leaves of both calls what they cost at any length.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import kvassay
from kvassay.protocol import Backend, Cache
from kvassay.records import Record
from kvassay.statistics.noise import interval

from .ceilings import ceilings
from .economy import Economy
from .roofline import Place
from .truth import Checked, check
from .turns import CALIBRATION, Series, evidence, span, take_turns
from .work import BASELINE, SHORT, Call, Owner, Shape, filled, owner, tokens_of

#: Figure: the calls it is the sum of, the calls taken off, and what it means.
PARTS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...], str]]] = {
    "decode": (("append", "attend"), (), "append of one token, sealing spread over it, and attend"),
    "append": (("append",), (), "appends of a page's tokens one by one, over their number"),
    "attend": (("attend",), (), "attention of one query"),
    "key_scan": (("scores",), ("short scores",), "scores less those of one short page"),
    "value_scan": (("attend",), ("scores",), "attend less scores: softmax and value sums"),
}


def measure(
    backend: str,
    variant: str,
    presets: Sequence[str],
    tokens: int,
    shape: dict[str, int],
    rounds: int,
    seconds: float,
    judged: bool,
) -> list[Record]:
    """Times of a step and of its parts, a record a figure and preset.

    `judged` marks the length at which the transform must have paid for itself.
    """
    loaded = kvassay.load(backend, variant)
    whose = owner(backend, variant, tokens, Shape(**shape), loaded)
    with ExitStack() as stack:
        groups, caches = _calls(loaded, whose, presets, stack)
        query = tokens_of(whose.shape, tokens)[2][0]
        first = {preset: cache.attend(0, query) for preset, cache in caches.items()}
        series = take_turns(groups, rounds, seconds)
        states = {
            preset: _State(
                dict(cache.nbytes),
                check(loaded, whose, preset, first[preset], cache.attend(0, query)),
            )
            for preset, cache in caches.items()
        }
    records = []
    for preset in presets:
        records += _records(whose, preset, series, states[preset], judged)
    return records


@dataclass(frozen=True)
class _State:
    """What a preset's cache held when its steps were timed, and what they computed before the
    first and after the last."""

    parts: Mapping[str, int]
    checked: Checked


def _calls(
    loaded: Backend, whose: Owner, presets: Sequence[str], stack: ExitStack
) -> tuple[list[dict[str, Call]], dict[str, Cache]]:
    """The same call of all presets, a group each, and each preset's cache of all tokens."""
    k, v, queries = tokens_of(whose.shape, whose.tokens)
    q = queries[0]
    groups: dict[str, dict[str, Call]] = {}
    caches = {}
    for preset in presets:
        spec, short_spec = whose.shape.spec(preset), whose.shape.spec(preset, short=True)
        cache = stack.enter_context(filled(loaded, spec, k, v))
        growing = stack.enter_context(filled(loaded, spec, k[:64], v[:64]))
        short = stack.enter_context(filled(loaded, short_spec, k[:SHORT], v[:SHORT]))
        caches[preset] = cache
        calls: dict[str, Call] = {
            "attend": partial(cache.attend, 0, q),
            "scores": partial(cache.scores, 0, q),
            "append": _appending(growing, k, v),
            "short attend": partial(short.attend, 0, q),
            "short scores": partial(short.scores, 0, q),
        }
        for name, call in calls.items():
            groups.setdefault(name, {})[f"{preset} {name}"] = call
    return list(groups.values()), caches


def _appending(cache: Cache, k: Any, v: Any) -> Call:
    """Appends of a page's worth of tokens, so that each sample seals one page."""
    page = cache.spec.page_tokens

    def append() -> None:
        for token in range(page):
            cache.append(0, k[token : token + 1], v[token : token + 1])

    return append


def _records(
    whose: Owner, preset: str, series: Series, state: _State, judged: bool
) -> list[Record]:
    page = whose.shape.spec(preset).page_tokens
    timed = _by_token(series, preset, page)
    base = _by_token(series, BASELINE, page)
    shared = {
        **state.checked.detail,
        "rounds": series.rounds,
        "calibration_drift": series.drift,
        "calibration_us": series.median(CALIBRATION) / 1e3,
    }
    if state.checked.wrong:
        return [
            whose.record(name, preset, math.nan, "us", 0, {**shared, "method": method})
            for name, (_, _, method) in PARTS.items()
        ]
    # A machine that changed its speed on the way says nothing about anybody's.
    count = series.rounds if series.steady else 0
    records = []
    for name, (plus, minus, method) in PARTS.items():
        values = timed.sums(*plus, less=minus)
        against = base.sums(*plus, less=minus) if preset != BASELINE else _loop(series)
        pairs = [a / b for a, b in zip(values, against, strict=True)]
        detail = {
            **shared,
            **evidence(values),
            "method": method,
            "against": BASELINE if preset != BASELINE else CALIBRATION,
            # The fixed loop meets another part of the machine than a cache does, so that ratios to
            # it are for comparing machines and no track follows them.
            "ratios" if preset != BASELINE else "loop_ratios": [round(pair, 5) for pair in pairs],
            "ratio": {"median": statistics.median(pairs), **span(interval(pairs))},
        }
        value = statistics.median(values) / 1e3
        records.append(whose.record(name, preset, value, "us", count, detail))
    found = ceilings()
    place = Place.of(whose, state.parts, timed.median("attend"))
    share = place.least_seconds(found) / place.seconds
    said = "the least time that read bandwidth and peak allow, over the time of attention"
    detail = {**shared, **place.detail(found), "method": said}
    records.append(whose.record("roofline", preset, share, "of the roof", count, detail))
    if preset != BASELINE:
        economy = Economy.of(whose, preset, timed, base)
        records += economy.records(whose, preset, count, shared, judged)
    return records


def _loop(series: Series) -> list[float]:
    return list(series.samples[CALIBRATION])


def _by_token(series: Series, preset: str, page: int) -> Series:
    """The samples of one preset by the bare names of their calls; appends a token."""
    names = ("attend", "scores", "short attend", "short scores")
    samples = {name: series.samples[f"{preset} {name}"] for name in names}
    samples["append"] = [value / page for value in series.samples[f"{preset} append"]]
    samples[CALIBRATION] = series.samples[CALIBRATION]
    return Series(samples, series.before, series.after)
