"""Experiment A: floats beside the quantized cache, on the same queries, while the model reads the
cache. Its other half, what the transform costs, is in `transform.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kvassay.models import CacheAttention, log_softmax
from kvassay.models.attention import Floats
from kvassay.protocol import Cache
from kvassay.records import Record
from kvassay.suite import Target

from . import metrics
from .fidelity import exact_attention, first_sealed, sampled_positions
from .intervals import block_interval
from .measured import REAL, Origin, load
from .metrics import Doubles
from .real_model import cache_spec, fixed_text, real_model
from .sharing import share


class ShadowAttention(CacheAttention):
    """Attention through a cache, with every key and value beside it as float64.

    kl: by layer, one row a sampled query, (query_heads,) nats: KL of the exact attention over the
    floats to the cache's own. Both see the same queries, which are those of the run with the cache.
    """

    def __init__(self, cache: Cache, tokens: int, every: int) -> None:
        super().__init__(cache)
        self._held = cache
        # The same positions in all layers, of which those that slide may have no sinks.
        latest = max(cache.spec.layer_specs, key=first_sealed)
        self._sampled = set(sampled_positions(latest, tokens, every))
        self._keys: dict[int, Doubles] = {}
        self._values: dict[int, Doubles] = {}
        self.kl: dict[int, list[Doubles]] = {}

    def __call__(self, layer: int, q: Floats, k: Floats, v: Floats) -> Floats:
        """Append and attend token by token; the floats are never given to the model."""
        keys, values = self._grown(layer, k, v)
        out = np.empty_like(q)
        begin = keys.shape[1] - len(q)
        for t in range(len(q)):
            out[t] = super().__call__(layer, q[t : t + 1], k[t : t + 1], v[t : t + 1])[0]
            if begin + t in self._sampled:
                seen = begin + t + 1
                self._compare(layer, q[t], keys[:, :seen], values[:, :seen])
        return out

    def _grown(self, layer: int, k: Floats, v: Floats) -> tuple[Doubles, Doubles]:
        for held, new in ((self._keys, k), (self._values, v)):
            heads = new.transpose(1, 0, 2).astype(np.float64)
            held[layer] = np.concatenate([held[layer], heads], 1) if layer in held else heads
        return self._keys[layer], self._values[layer]

    def _compare(self, layer: int, q: Floats, keys: Doubles, values: Doubles) -> None:
        spec = self._held.spec.layer(layer)
        log_p, _ = exact_attention(q, keys, values, spec.softmax_scale, spec.span, spec.sinks)
        log_q = log_softmax(self._held.scores(layer, q))
        self.kl.setdefault(layer, []).append(metrics.kl_divergence(log_p, log_q))


def measure(
    backend: str,
    variant: str,
    preset: str,
    model: str,
    tokens: int,
    every: int,
    followers: Sequence[tuple[str, str]] = (),
) -> list[Record]:
    """KL of the attention beside its shadow over the fixed text, the cache in the model's loop.

    every: distance of sampled queries. followers: as of the teacher-forced pass.
    """
    target = Target(backend, variant)
    loaded = load(target)
    captured = fixed_text(model, tokens)
    spec = cache_spec(preset, captured)
    with loaded.prepare(spec) as cache:
        shadow = ShadowAttention(cache, tokens, every)
        real_model(model).hidden(captured.tokens, shadow)
    records = shadow_records(Origin(target, preset, REAL), shadow.kl, captured.digest)
    return share(records, target, followers, preset, captured, "shadow")


def shadow_records(origin: Origin, found: Mapping[int, list[Doubles]], text: str) -> list[Record]:
    """The median over layers, heads and queries, whose interval is of the median query's mean; and
    that of each layer."""
    layers = {layer: np.array(rows) for layer, rows in sorted(found.items())}
    every = np.concatenate([rows.ravel() for rows in layers.values()]) if layers else np.empty(0)
    by_query = np.array([rows.mean(axis=1) for rows in layers.values()])
    overall = origin.record(
        "shadow_kl",
        metrics.median(every),
        "nats",
        every.size,
        "all layers",
        **metrics.spread(every),
        mean_interval=block_interval(by_query.mean(axis=0), block=8) if layers else None,
        by_layer=[metrics.median(rows) for rows in layers.values()],
        text=text,
    )
    each = [
        origin.record(
            "shadow_kl",
            metrics.median(rows.ravel()),
            "nats",
            rows.size,
            f"layer {layer}",
            text=text,
        )
        for layer, rows in layers.items()
    ]
    return [overall, *each]
