"""Stage "real model scalar": a real model's attention and predictions with a cache in the loop."""

from __future__ import annotations

from collections.abc import Sequence

from kvassay.models import CacheAttention, Capture, Model
from kvassay.page.costs import Costs
from kvassay.protocol import Backend
from kvassay.records import Record
from kvassay.suite import Target

from .fidelity import (
    Fidelity,
    fidelity_records,
    first_sealed,
    layer_fidelity,
    layer_records,
    sampled_positions,
)
from .measured import REAL, Origin, load
from .predictions import LayerDrift, compare_predictions, prediction_records
from .real_model import cache_spec, fixed_text, real_model, spread_layers, tensors
from .sharing import share
from .zeros import exact_zeros


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
    records.append(exact_zeros(origin, records, "fixed text"))
    return share(records, target, followers, preset, captured, "fixed text")


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
    return records + layer_records(origin, layers, measured)


def _next_token(origin: Origin, backend: Backend, model: Model, captured: Capture) -> list[Record]:
    spec = cache_spec(origin.preset, captured)
    first = first_sealed(spec.layer(0))
    layers = LayerDrift(model, captured, first)
    with backend.prepare(spec) as cache:
        hidden = model.hidden(captured.tokens, CacheAttention(cache), watch=layers.watch)
    found = compare_predictions(model, captured, hidden)
    page_bits = Costs.of(spec).page_bits
    shared = {"tokens": len(hidden), "text": captured.digest, "page_bits": page_bits}
    records = prediction_records(origin, found, first, "fixed text", "next_token", **shared)
    return [
        *records,
        origin.record(
            "residual_cosine",
            min(layers.cosine),
            "cosine, least of the layers",
            found.kl[first:].size,
            "fixed text",
            by_layer=layers.cosine,
            error_by_layer=layers.error,
            logit_drift_by_layer=layers.logits,
            from_position=first,
            **shared,
        ),
    ]
