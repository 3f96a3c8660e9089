"""Control lanes: the tiny transformer with one part of a quantized cache at a time.

Each lane has a band that its distance from full precision must keep; outside of it the
measurement itself is in doubt, and the alarm is red.

fp16 only: the backend's own cache without a codec. Transform only: keys, values and queries turned
by the oracle's matrices and nothing rounded, which must be float noise. Quantizer only: the
backend's pages decoded by the oracle, with exact softmax in float64. Whole: the cache as it is,
which must not be much nearer to full precision than its own codes allow, nor much further.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from kvassay.models import CacheAttention, Model, log_softmax, tiny, tiny_tokens
from kvassay.models.attention import Floats, KVCache
from kvassay.presets import preset as make_preset
from kvassay.protocol import Backend, Cache
from kvassay.records import Record
from kvassay.spec import Spec
from kvassay.suite import Target
from kvassay_suites.oracle import attend64, decode_cache, rotation

from . import metrics
from .fidelity import first_sealed
from .measured import TINY, Origin, load
from .metrics import Doubles
from .tiny_transformer import SMALL_WINDOW, TOKENS

#: Mean next-token KL in nats that float32 arithmetic alone explains.
NOISE: Final = 1e-9
#: The same for keys and values rounded to fp16: below it nothing was rounded.
FP16: Final = (1e-9, 1e-4)
#: KL of the whole cache over that of its decoded codes with exact softmax: the contract's integer
#: arithmetic may add at most a hundredth to an error.
WHOLE: Final = (0.9, 1.1)

Band = tuple[float, float]


@dataclass
class Turned:
    """A float cache in the coordinates of the transform: nothing is lost but rounding."""

    spec: Spec
    keys: dict[int, list[Floats]] = field(default_factory=dict)
    values: dict[int, list[Floats]] = field(default_factory=dict)

    def append(self, layer: int, k: Floats, v: Floats) -> None:
        """Keep the tokens, turned."""
        self.keys.setdefault(layer, []).append(k @ self._matrix(0).T)
        self.values.setdefault(layer, []).append(v @ self._matrix(1).T)

    def attend(self, layer: int, q: Floats) -> Floats:
        """Attention in float32 between turned queries and keys; the output is turned back."""
        keys = np.concatenate(self.keys[layer]).transpose(1, 2, 0)
        values = np.concatenate(self.values[layer]).transpose(1, 0, 2)
        turned = (q @ self._matrix(0).T).reshape(len(keys), -1, q.shape[1])
        weights: Floats = np.exp(turned @ keys * np.float32(self.spec.effective_softmax_scale))
        out = weights @ values / weights.sum(axis=-1, keepdims=True)
        back: Floats = out.reshape(q.shape) @ self._matrix(1)
        return back

    def _matrix(self, stream: int) -> Floats:
        spec = self.spec
        matrix = rotation(spec.head_dim, spec.seed, stream, spec.rounds)
        single: Floats = matrix.astype(np.float32)
        return single


class Decoded:
    """A backend's cache read by the oracle, attended in float64.

    Pages never change once sealed, so they are decoded when one more is; newer tokens are the fp16
    that the cache keeps them in.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._sealed: dict[int, int] = {}
        self._held: dict[int, tuple[Doubles, Doubles]] = {}

    def append(self, layer: int, k: Floats, v: Floats) -> None:
        """Give the tokens to the cache and keep them as fp16 until their page is sealed."""
        self._cache.append(layer, k, v)
        new = tuple(x.astype(np.float16).astype(np.float64) for x in (k, v))
        old = self._held.get(layer)
        keys, values = (
            new if old is None else (np.concatenate(p) for p in zip(old, new, strict=True))
        )
        self._held[layer] = keys, values
        sealed = self._cache.spec.layer(layer).sealed(len(keys))
        if sealed != self._sealed.get(layer, 0):
            self._sealed[layer] = sealed
            state = decode_cache(self._cache.dump())[layer]
            self._held[layer] = state.k, state.v

    def attend(self, layer: int, q: Floats) -> Floats:
        """Exact attention over what the cache stores."""
        keys, values = self._held[layer]
        scale = self._cache.spec.effective_softmax_scale
        out: Floats = attend64(keys, values, q, scale, 0, 0, len(keys)).astype(np.float32)
        return out


def measure(backend: str, variant: str, preset: str) -> list[Record]:
    """The lanes of one preset with a window of 32, and how many are outside their bands.

    A backend that is not exact has pages of its own, which the oracle cannot read: it has no lane
    of decoded pages, and its whole is held to the floor alone.
    """
    target = Target(backend, variant)
    loaded, origin = load(target), Origin(target, preset, TINY)
    shape = _model().config.shape
    spec = make_preset(preset, **{**shape, "window": min(SMALL_WINDOW, _window(preset, shape))})
    first = first_sealed(spec.layer(0))
    found: dict[str, tuple[float, Band]] = {
        "fp16 only": (_through(loaded, make_preset("fp16", **shape), first), FP16),
        "transform only": (_kl(Turned(spec), first), (float(np.finfo(float).tiny), NOISE)),
    }
    if spec.keys != "fp16":
        whole = _through(loaded, spec, first)
        band = FP16[1], math.inf
        if loaded.exact:
            with loaded.prepare(spec) as cache:
                codes = _kl(Decoded(cache), first)
            found["quantizer only"] = codes, band
            band = WHOLE[0] * codes, WHOLE[1] * codes
        found["whole"] = whole, band
    return lane_records(origin, found, TOKENS - first)


def lane_records(
    origin: Origin, found: dict[str, tuple[float, Band]], comparisons: int
) -> list[Record]:
    """The distance of every lane, and the number of lanes outside their bands."""
    red = [name for name, (kl, (low, high)) in found.items() if not low <= kl <= high]
    detail: dict[str, Any] = {"outside": red}
    return [
        *(
            origin.record(
                "lane_kl",
                kl,
                "nats",
                comparisons,
                name,
                band=[end if math.isfinite(end) else None for end in band],
            )
            for name, (kl, band) in found.items()
        ),
        origin.record("lane_alarms", len(red), "lanes", len(found), "control lanes", **detail),
    ]


def _window(preset: str, shape: dict[str, Any]) -> int:
    return make_preset(preset, **shape).window


def _through(backend: Backend, spec: Spec, first: int) -> float:
    with backend.prepare(spec) as cache:
        return _kl(cache, first)


def _kl(cache: KVCache, first: int) -> float:
    """Mean next-token KL in nats over the positions that meet a sealed page."""
    found = log_softmax(_model().forward(tiny_tokens(TOKENS), CacheAttention(cache)))
    return metrics.mean(metrics.kl_divergence(_exact()[first:], found[first:]))


@functools.cache
def _model() -> Model:
    return tiny("gqa")


@functools.cache
def _exact() -> Doubles:
    """Logarithms of the next-token probabilities of full precision."""
    return log_softmax(_model().forward(tiny_tokens(TOKENS), _model().full_attention()))
