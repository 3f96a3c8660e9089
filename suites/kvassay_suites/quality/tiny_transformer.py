"""Stage "tiny transformer": a whole forward pass with the cache in the loop, token by token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from kvassay.models import CacheAttention, FullAttention, Model, log_softmax, tiny, tiny_tokens
from kvassay.presets import preset as make_preset
from kvassay.protocol import Backend, FloatArray
from kvassay.records import Record
from kvassay.spec import Spec
from kvassay.suite import Target

from . import metrics
from .fidelity import first_sealed
from .measured import TINY, Origin, load
from .zeros import exact_zeros

#: Two pages of 64 sealed behind a window of 128 and 4 sinks.
TOKENS: Final = 272
SMALL_WINDOW: Final = 32
TOP: Final = 5
#: A choice is clear where full precision prefers the first token to the second at least two to
#: one. Random weights make many near ties, which any rounding turns over.
CLEAR: Final = math.log(2.0)


def measure(
    backend: str, variant: str, preset: str, shapes: Sequence[str], small_window: bool = True
) -> list[Record]:
    """Logits of tiny models of these shapes, with the preset's window and, if asked, a small
    one."""
    target = Target(backend, variant)
    loaded = load(target)
    origin = Origin(target, preset, TINY)
    records: list[Record] = []
    for shape in shapes:
        for spec in _specs(preset, shape, small_window):
            records += _compare(origin, loaded, shape, spec)
    return [*records, exact_zeros(origin, records, "tiny transformers")]


@cache
def _model(shape: Any) -> tuple[Model, FloatArray]:
    """The model and its full-precision logits."""
    model = tiny(shape)
    return model, model.forward(tiny_tokens(TOKENS), FullAttention())


def _specs(preset: str, shape: str, small_window: bool) -> list[Spec]:
    fields: dict[str, Any] = _model(shape)[0].config.shape
    own = make_preset(preset, **fields)
    small = make_preset(preset, **{**fields, "window": SMALL_WINDOW})
    return [own, small] if small_window and own.window > SMALL_WINDOW else [own]


def _compare(origin: Origin, backend: Backend, shape: str, spec: Spec) -> list[Record]:
    """At every position whose query meets a sealed page."""
    model, full = _model(shape)
    with backend.prepare(spec) as kv:
        logits = model.forward(tiny_tokens(TOKENS), CacheAttention(kv))
    first = first_sealed(spec.layer(0))
    found, right = logits[first:], full[first:]
    drift = np.array([metrics.relative_rms(*pair) for pair in zip(found, right, strict=True)])
    same = metrics.same_top1(right, found)
    clear = np.diff(np.sort(right, axis=-1)[:, -2:], axis=-1)[:, 0] >= CLEAR
    overlap = metrics.topk_overlap(right, found, TOP)
    kl = metrics.kl_divergence(log_softmax(right), log_softmax(found))
    subject = f"{shape}, window {spec.window}"
    return [
        origin.record("tiny_kl", metrics.mean(kl), "nats", len(kl), subject, **metrics.spread(kl)),
        origin.record(
            "tiny_logit_drift",
            metrics.relative_rms(found, right),
            "relative RMS",
            len(drift),
            subject,
            **metrics.spread(drift),
        ),
        origin.record(
            "tiny_top1",
            metrics.mean(same[clear]),
            "agreement",
            int(clear.sum()),
            subject,
            every_choice=metrics.mean(same),
            clear_share=metrics.mean(clear),
        ),
        origin.record(
            "tiny_topk", metrics.mean(overlap), "agreement", len(overlap), subject, k=TOP
        ),
    ]
