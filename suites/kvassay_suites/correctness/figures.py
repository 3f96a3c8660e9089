"""What quantization does to one layer's attention: figures that are reported and not judged."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import kvassay
from kvassay.records import Record

from ..common.inputs import gaussian
from ..common.specs import ONE_LAYER, record
from ..oracle.attention import softmax64
from .contract import look

Float64 = NDArray[np.float64]
TOKENS = 512
QUERIES = 16


def _divergences(p: Float64, q: Float64) -> tuple[Float64, Float64]:
    """KL(p || q) and Jensen-Shannon divergence along the last axis, in nats."""
    mean = (p + q) / 2
    tiny = np.finfo(np.float64).tiny

    def kl(a: Float64, b: Float64) -> Float64:
        return np.asarray(np.sum(a * np.log(np.maximum(a, tiny) / np.maximum(b, tiny)), -1))

    return kl(p, q), (kl(p, mean) + kl(q, mean)) / 2


def measure(backend: str, variant: str, preset: str) -> list[Record]:
    """Figures of a preset without its window, on tensors with structure: attention from codes.

    Keys have a bias and a slow drift along the tokens, as keys after RoPE do.
    """
    loaded = kvassay.load(backend, variant)
    d, heads, kv_heads = 64, 8, 2
    spec = kvassay.preset(
        preset, layers=1, kv_heads=kv_heads, query_heads=heads, head_dim=d, window=0
    )
    shape = (TOKENS + spec.sinks, kv_heads, d)
    drift = np.cumsum(gaussian(71, *shape), axis=0) / np.float32(np.sqrt(TOKENS))
    k = gaussian(72, *shape) + 2 * gaussian(73, 1, kv_heads, d) + drift
    v = gaussian(74, *shape) + gaussian(75, 1, kv_heads, d)
    seen = look(loaded, spec, k, v, 2 * gaussian(76, QUERIES, heads, d))
    own, exact = softmax64(seen.scores[0]), softmax64(seen.scores[2])
    kl, js = _divergences(exact, own)
    best, own_best = exact.argmax(-1), own.argmax(-1)
    top = np.take_along_axis(seen.scores[0], best[..., None], -1)
    fallen = np.sum(seen.scores[0] > top, -1)
    group = heads // kv_heads
    error = seen.outputs[0] - seen.outputs[2]
    cosine = np.sum(seen.outputs[0] * seen.outputs[2], -1) / (
        np.linalg.norm(seen.outputs[0], axis=-1) * np.linalg.norm(seen.outputs[2], axis=-1)
    )
    weighted = np.einsum("nht,thd->nhd", exact, np.repeat(v.astype(np.float64), group, axis=1))
    figures = {
        "attention_kl": (float(np.median(kl)), "nats, median"),
        "attention_js": (float(np.median(js)), "nats, median"),
        "top1_agreement": (float(np.mean(best == own_best)), "share"),
        "rank_change": (float(np.mean(fallen)), "ranks the top token falls, mean"),
        "value_error": (seen.value_error, "relative RMS"),
        "output_error": (float(np.sqrt(np.sum(error**2) / np.sum(weighted**2))), "relative RMS"),
        "output_cosine": (float(np.mean(cosine)), "cosine, mean"),
    }
    return [
        record(
            f"correctness.{name}",
            ONE_LAYER,
            backend,
            variant,
            value,
            unit,
            kl.size,
            preset=preset,
            subject="synthetic layer without window",
        )
        for name, (value, unit) in figures.items()
    ]
