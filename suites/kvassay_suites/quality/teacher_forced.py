"""Stage "real model scalar": a real model's attention and predictions with a cache in the loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvassay.costs import Costs
from kvassay.models import CacheAttention, Capture, Model, log_softmax
from kvassay.protocol import Backend, FloatArray
from kvassay.records import Record
from kvassay.suite import Target

from . import metrics
from .fidelity import Fidelity, fidelity_records, first_sealed, layer_fidelity, sampled_positions
from .measured import REAL, Origin, load
from .metrics import Doubles
from .real_model import cache_spec, fixed_text, real_model, spread_layers, tensors
from .sharing import share

#: Rows of logits at a time: 128 x 49152 in float64 are 50 MB.
_ROWS: Final = 128


def measure(
    backend: str,
    variant: str,
    preset: str,
    model: str,
    tokens: int,
    layers: int,
    every: int,
    followers: Sequence[tuple[str, str]] = (),
) -> list[Record]:
    """Attention fidelity on captured tensors and a teacher-forced pass with the cache in the loop.

    tokens: of the fixed text. layers: at most so many in the attention figures; the pass always
    runs all. every: distance of sampled queries. followers: exact backends that take over the
    records once their bits are shown to be equal.
    """
    target = Target(backend, variant)
    loaded = load(target)
    captured = fixed_text(model, tokens)
    origin = Origin(target, preset, REAL)
    records = _attention(origin, loaded, captured, layers, every)
    records += _next_token(origin, loaded, real_model(model), captured)
    if not loaded.exact:
        return records
    others = [Target(*follower) for follower in followers]
    return share(records, target, others, preset, captured, "fixed text")


def _attention(
    origin: Origin, backend: Backend, captured: Capture, wanted: int, every: int
) -> list[Record]:
    spec = cache_spec(origin.preset, captured)
    layers = spread_layers(spec.layers, wanted)
    measured: list[Fidelity] = []
    with backend.prepare(spec) as cache:
        for layer in layers:
            positions = sampled_positions(spec.layer(layer), len(captured.tokens), every)
            measured.append(layer_fidelity(cache, layer, tensors(captured, layer), positions))
    records = fidelity_records(
        origin,
        measured,
        ("attention", "output"),
        "all layers",
        layers=layers,
        tokens=len(captured.tokens),
        text=captured.digest,
    )
    return records + [
        origin.record(
            "attention_kl",
            metrics.median(found.kl),
            "nats",
            found.kl.size,
            f"layer {layer}",
            **metrics.spread(found.kl),
        )
        for layer, found in zip(layers, measured, strict=True)
    ]


@dataclass(frozen=True)
class Predictions:
    """Next-token distributions against full precision, by position of the token before.

    kl in nats and top1 are (tokens,); nll, of the true next token in nats under the cache and
    under full precision, are (tokens - 1,).
    """

    kl: Doubles
    top1: Doubles
    nll: Doubles
    full_nll: Doubles


def compare_predictions(model: Model, captured: Capture, hidden: FloatArray) -> Predictions:
    """Next-token distributions of `hidden` (tokens, hidden) against those of the captured pass."""
    following = np.asarray(captured.tokens)[1:]
    kl, top1, nll, full_nll = [], [], [], []
    for begin in range(0, len(hidden), _ROWS):
        rows = slice(begin, begin + _ROWS)
        log_p = log_softmax(model.logits(captured.hidden[rows]))
        log_q = log_softmax(model.logits(hidden[rows]))
        kl.append(metrics.kl_divergence(log_p, log_q))
        top1.append(metrics.same_top1(log_p, log_q).astype(np.float64))
        ids = following[rows]
        nll.append(-log_q[np.arange(len(ids)), ids])
        full_nll.append(-log_p[np.arange(len(ids)), ids])
    return Predictions(*(np.concatenate(part) for part in (kl, top1, nll, full_nll)))


def _next_token(origin: Origin, backend: Backend, model: Model, captured: Capture) -> list[Record]:
    spec = cache_spec(origin.preset, captured)
    with backend.prepare(spec) as cache:
        hidden = model.hidden(captured.tokens, CacheAttention(cache))
    found = compare_predictions(model, captured, hidden)
    aged = slice(first_sealed(spec.layer(0)), None)
    kl, top1, nll, full_nll = (x[aged] for x in (found.kl, found.top1, found.nll, found.full_nll))
    subject = "fixed text"
    shared = {"tokens": len(hidden), "from_position": aged.start, "text": captured.digest}
    return [
        origin.record(
            "next_token_kl",
            metrics.mean(kl),
            "nats",
            kl.size,
            subject,
            **metrics.spread(kl),
            **metrics.mean_interval(kl),
            page_bits=Costs.of(spec).page_bits,
            mean_all_positions=metrics.mean(found.kl),
            **shared,
        ),
        origin.record(
            "next_token_top1",
            metrics.mean(top1),
            "fraction",
            top1.size,
            subject,
            all_positions=metrics.mean(found.top1),
            **shared,
        ),
        origin.record(
            "nll_rise",
            metrics.relative_rise(full_nll, nll),
            "relative",
            nll.size,
            subject,
            nll=metrics.mean(nll),
            full_nll=metrics.mean(full_nll),
            perplexity=math.exp(metrics.mean(found.nll)),
            full_perplexity=math.exp(metrics.mean(found.full_nll)),
            **shared,
        ),
    ]
