"""How near attention over a cache comes to exact attention over the same queries, keys, values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvassay.errors import InputError
from kvassay.models import log_softmax
from kvassay.protocol import Cache, FloatArray
from kvassay.records import Record
from kvassay.spec import LayerSpec

from . import metrics
from .measured import Origin
from .metrics import Doubles


@dataclass(frozen=True)
class LayerTensors:
    """Post-RoPE tensors of one layer: q (tokens, query_heads, head_dim), k and v with KV heads."""

    q: FloatArray
    k: FloatArray
    v: FloatArray


@dataclass(frozen=True)
class Fidelity:
    """Distances of one layer, (queries, query_heads) each, and the relative RMS output error."""

    kl: Doubles
    js: Doubles
    top1: Doubles
    cosine: Doubles
    error: float


def first_sealed(layer: LayerSpec) -> int:
    """The first position whose query meets a sealed page.

    Earlier queries meet fp16 tokens alone and would only dilute the figures.
    """
    return layer.sinks + layer.window + layer.page_tokens - 1


def sampled_positions(layer: LayerSpec, tokens: int, every: int) -> list[int]:
    """Every so many positions from the first one whose query meets a sealed page."""
    return list(range(first_sealed(layer), tokens, every))


def layer_fidelity(
    cache: Cache, layer: int, tensors: LayerTensors, positions: Sequence[int]
) -> Fidelity:
    """Append the tokens one by one; at `positions` compare scores and output with exact ones."""
    scale, span = cache.spec.effective_softmax_scale, cache.spec.layer(layer).span
    sinks = cache.spec.layer(layer).sinks
    keys, values = _by_head(tensors.k), _by_head(tensors.v)
    wanted = set(positions)
    distances: list[tuple[Doubles, ...]] = []
    outputs: list[tuple[Doubles, Doubles]] = []
    for t in range(len(tensors.k)):
        cache.append(layer, tensors.k[t : t + 1], tensors.v[t : t + 1])
        if t not in wanted:
            continue
        log_p, exact = exact_attention(
            tensors.q[t], keys[:, : t + 1], values[:, : t + 1], scale, span, sinks
        )
        log_q = log_softmax(_checked(cache.scores(layer, tensors.q[t]), log_p.shape, "scores"))
        out = _checked(cache.attend(layer, tensors.q[t]), exact.shape, "attend")
        distances.append(_distances(log_p, log_q, exact, out))
        outputs.append((out.astype(np.float64), exact))
    kl, js, top1, cosine = np.array(distances).reshape(-1, 4, cache.spec.query_heads).swapaxes(0, 1)
    found, right = np.array(outputs).reshape(-1, 2, *tensors.q.shape[1:]).swapaxes(0, 1)
    return Fidelity(kl, js, top1, cosine, metrics.relative_rms(found, right))


def fidelity_records(
    origin: Origin,
    measured: Sequence[Fidelity],
    names: tuple[str, str],
    subject: str,
    **detail: Any,
) -> list[Record]:
    """KL, JS, top-1 agreement, output error and output cosine over the layers.

    names: what the checks about weights and about outputs are called. Details hold the spread and
    the same figure layer by layer.
    """
    weights, output = names
    kl = np.concatenate([layer.kl for layer in measured])
    js = np.concatenate([layer.js for layer in measured])
    top1 = np.concatenate([layer.top1 for layer in measured])
    cosine = np.concatenate([layer.cosine for layer in measured])
    errors = [layer.error for layer in measured]
    figures: list[tuple[str, float, str, dict[str, Any]]] = [
        (
            f"{weights}_kl",
            metrics.median(kl),
            "nats",
            {
                **metrics.spread(kl),
                "by_layer": [metrics.median(layer.kl) for layer in measured],
                "mean_by_layer": [metrics.mean(layer.kl) for layer in measured],
            },
        ),
        (
            f"{weights}_js",
            metrics.median(js),
            "nats",
            {**metrics.spread(js), "by_layer": [metrics.median(layer.js) for layer in measured]},
        ),
        (
            f"{weights}_top1",
            metrics.mean(top1),
            "agreement",
            {"by_layer": [metrics.mean(layer.top1) for layer in measured]},
        ),
        (
            f"{output}_error",
            float(np.sqrt(np.mean(np.square(errors)))),
            "relative RMS",
            {"by_layer": errors},
        ),
        (
            f"{output}_cosine",
            metrics.mean(cosine),
            "cosine",
            {"by_layer": [metrics.mean(layer.cosine) for layer in measured]},
        ),
    ]
    return [
        origin.record(check, value, unit, kl.size, subject, **more, **detail)
        for check, value, unit, more in figures
    ]


def layer_records(
    origin: Origin, layers: Sequence[int], measured: Sequence[Fidelity]
) -> list[Record]:
    """The attention KL of each layer by itself."""
    return [
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


def _distances(
    log_p: Doubles, log_q: Doubles, exact: Doubles, out: FloatArray
) -> tuple[Doubles, ...]:
    return (
        metrics.kl_divergence(log_p, log_q),
        metrics.js_divergence(log_p, log_q),
        metrics.same_top1(log_p, log_q).astype(np.float64),
        metrics.cosine(out, exact),
    )


def _by_head(x: FloatArray) -> Doubles:
    by_head: Doubles = np.ascontiguousarray(x.transpose(1, 0, 2), dtype=np.float64)
    return by_head


def exact_attention(
    q: FloatArray, keys: Doubles, values: Doubles, scale: float, span: int = 0, sinks: int = 0
) -> tuple[Doubles, Doubles]:
    """Log attention (query_heads, tokens) and output (query_heads, head_dim) in float64.

    keys, values: (kv_heads, tokens, head_dim). Query head h reads KV head
    floor(h * kv_heads / query_heads). span: tokens attended besides the sinks, 0 for all; those
    outside have -inf.
    """
    kv_heads, tokens, d = keys.shape
    grouped = q.astype(np.float64).reshape(kv_heads, -1, d)
    logits = grouped @ keys.transpose(0, 2, 1) * scale
    if span:
        logits[..., sinks : max(sinks, tokens - span)] = -np.inf
    log_p = log_softmax(logits)
    out = np.exp(log_p) @ values
    return log_p.reshape(len(q), tokens), out.reshape(len(q), d)


def _checked(array: FloatArray, shape: tuple[int, ...], call: str) -> FloatArray:
    if array.shape != shape:
        raise InputError(f"{call} returned shape {array.shape}, expected {shape}")
    return array
