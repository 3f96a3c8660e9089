"""Stage "tiny transformer": a whole forward pass with the cache in the loop, token by token."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from kvassay.models import CacheAttention, FullAttention, Model, tiny, tiny_tokens
from kvassay.presets import preset as make_preset
from kvassay.protocol import Backend, FloatArray
from kvassay.records import Record
from kvassay.spec import Spec
from kvassay.suite import Target

from . import metrics
from .fidelity import sampled_positions
from .measured import TINY, Origin, load

KINDS: Final = ("mha", "gqa", "mqa")
#: Two pages of 64 sealed behind a window of 128 and 4 sinks.
TOKENS: Final = 272
SMALL_WINDOW: Final = 32
TOP: Final = 5


def measure(backend: str, variant: str, preset: str) -> list[Record]:
    """Logits of the three tiny models, with the preset's window and with a small one."""
    target = Target(backend, variant)
    loaded = load(target)
    origin = Origin(target, preset, TINY)
    records: list[Record] = []
    for kind in KINDS:
        for spec in _specs(preset, kind):
            records += _compare(origin, loaded, kind, spec)
    return records


@cache
def _model(kind: Any) -> tuple[Model, FloatArray]:
    """The model and its full-precision logits."""
    model = tiny(kind)
    return model, model.forward(tiny_tokens(TOKENS), FullAttention())


def _specs(preset: str, kind: str) -> list[Spec]:
    shape: dict[str, Any] = _model(kind)[0].config.shape
    own = make_preset(preset, **shape)
    small = make_preset(preset, **{**shape, "window": SMALL_WINDOW})
    return [own] if own.window <= SMALL_WINDOW else [own, small]


def _compare(origin: Origin, backend: Backend, kind: str, spec: Spec) -> list[Record]:
    """Positions whose query meets a sealed page, all of them."""
    model, full = _model(kind)
    with backend.prepare(spec) as kv:
        logits = model.forward(tiny_tokens(TOKENS), CacheAttention(kv))
    positions = sampled_positions(spec.layer(0), TOKENS, 1)
    found, right = logits[positions], full[positions]
    subject = f"{kind}, window {spec.window}"
    overlap = metrics.topk_overlap(right, found, TOP)
    drift = [metrics.relative_rms(found[i], right[i]) for i in range(len(positions))]
    n = len(positions)
    return [
        origin.record(
            "tiny_logit_drift",
            metrics.relative_rms(found, right),
            "relative rms",
            n,
            subject,
            **metrics.spread(np.array(drift)),
        ),
        origin.record(
            "tiny_top1", metrics.mean(metrics.same_top1(right, found)), "fraction", n, subject
        ),
        origin.record("tiny_topk", metrics.mean(overlap), "fraction", n, subject, k=TOP),
    ]
