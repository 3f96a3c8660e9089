"""Next-token distributions with a cache in the loop against those of full precision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kvassay.models import Capture, Model, log_softmax
from kvassay.models.functions import rms_norm
from kvassay.protocol import FloatArray
from kvassay.records import Record

from . import metrics
from .intervals import block_interval
from .measured import Origin
from .metrics import Doubles

TOP: Final = 5
#: Values of logits at a time: 128 rows of a vocabulary of 49152 in float64 are 50 MB.
_LOGITS: Final = 128 * 49152
#: Parts of the text that figures by position are given for.
_PARTS: Final = 8
#: Distance of the positions at which the layers' own logits are looked at.
_EVERY: Final = 31


@dataclass(frozen=True)
class Predictions:
    """By position of the token before; (tokens,) but for nll and full_nll, (tokens - 1,).

    kl in nats; top1: whether the likeliest token is the same; topk: share of the TOP likeliest
    that stay among them; drift: relative RMS of the logits. nll, of the true next token in nats
    under the cache, and full_nll under full precision.
    """

    kl: Doubles
    top1: Doubles
    topk: Doubles
    drift: Doubles
    nll: Doubles
    full_nll: Doubles

    def since(self, first: int) -> Predictions:
        """From that position on."""
        return Predictions(**{name: values[first:] for name, values in vars(self).items()})


def compare_predictions(model: Model, captured: Capture, hidden: FloatArray) -> Predictions:
    """Next-token distributions of `hidden` (tokens, hidden) against those of the captured pass."""
    following = np.asarray(captured.tokens)[1:]
    rows = max(1, _LOGITS // model.config.vocab)
    parts: list[tuple[Doubles, ...]] = []
    for begin in range(0, len(hidden), rows):
        these = slice(begin, begin + rows)
        right, found = model.logits(captured.hidden[these]), model.logits(hidden[these])
        log_p, log_q = log_softmax(right), log_softmax(found)
        ids = following[these]
        at = np.arange(len(ids)), ids
        parts.append(
            (
                metrics.kl_divergence(log_p, log_q),
                metrics.same_top1(log_p, log_q).astype(np.float64),
                metrics.topk_overlap(log_p, log_q, TOP),
                np.array([metrics.relative_rms(*pair) for pair in zip(found, right, strict=True)]),
                -log_q[at],
                -log_p[at],
            )
        )
    return Predictions(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def by_position(found: Predictions, first: int) -> list[dict[str, float]]:
    """Figures of equal parts of the text from a position on; `to` is exclusive."""
    edges = np.linspace(first, len(found.kl), _PARTS + 1).astype(int)
    rows: list[dict[str, float]] = []
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = slice(begin, end)
        rows.append(
            {
                "from": begin,
                "to": end,
                "kl": metrics.mean(found.kl[part]),
                "top1": metrics.mean(found.top1[part]),
                "drift": metrics.mean(found.drift[part]),
                "nll_rise": metrics.relative_rise(found.full_nll[part], found.nll[part]),
            }
        )
    return rows


class LayerDrift:
    """How far the residual stream behind each layer goes from that of full precision.

    Give `watch` to `Model.hidden`, over the whole text of the captured pass, which must have kept
    its residuals. Only positions from `first` on count.
    """

    def __init__(self, model: Model, captured: Capture, first: int) -> None:
        self._model = model
        self._captured = captured
        self._first = first
        self.cosine: list[float] = []
        self.error: list[float] = []
        self.logits: list[float] = []

    def watch(self, layer: int, x: FloatArray) -> None:
        """Compare the stream behind a layer; layers come in order."""
        found, right = x[self._first :], self._captured.residuals[layer][self._first :]
        self.cosine.append(metrics.mean(metrics.cosine(found, right)))
        self.error.append(metrics.relative_rms(found, right))
        self.logits.append(
            metrics.relative_rms(self._lens(found[::_EVERY]), self._lens(right[::_EVERY]))
        )

    def _lens(self, x: FloatArray) -> FloatArray:
        """Logits if the model ended behind this layer (nostalgebraist 2020, the logit lens)."""
        model = self._model
        return model.logits(rms_norm(x, model.weights.norm, model.config.eps))


def prediction_records(
    origin: Origin, found: Predictions, first: int, subject: str, prefix: str, **shared: Any
) -> list[Record]:
    """KL, top-1, top-k, NLL rise and logit drift over the positions from `first` on.

    prefix: how the checks begin. Intervals are of 95 %, by blocks of positions.
    """
    aged = found.since(first)
    shared = {"from_position": first, **shared}
    rise = metrics.relative_rise(aged.full_nll, aged.nll)
    full = metrics.mean(aged.full_nll)
    figures: list[tuple[str, float, str, int, dict[str, Any]]] = [
        (
            f"{prefix}_kl",
            metrics.mean(aged.kl),
            "nats",
            aged.kl.size,
            {
                **metrics.spread(aged.kl),
                "interval": block_interval(aged.kl),
                "mean_all_positions": metrics.mean(found.kl),
            },
        ),
        (
            f"{prefix}_top1",
            metrics.mean(aged.top1),
            "agreement",
            aged.top1.size,
            {
                "interval": block_interval(aged.top1),
                "all_positions": metrics.mean(found.top1),
            },
        ),
        (
            f"{prefix}_topk",
            metrics.mean(aged.topk),
            "agreement",
            aged.topk.size,
            {"interval": block_interval(aged.topk), "k": TOP},
        ),
        (
            "nll_rise" if prefix == "next_token" else f"{prefix}_nll_rise",
            rise,
            "relative",
            aged.nll.size,
            {
                "interval": [bound / full for bound in block_interval(aged.nll - aged.full_nll)],
                "nll": metrics.mean(aged.nll),
                "full_nll": full,
                "perplexity": math.exp(metrics.mean(found.nll)),
                "full_perplexity": math.exp(metrics.mean(found.full_nll)),
            },
        ),
        (
            "logit_drift" if prefix == "next_token" else f"{prefix}_logit_drift",
            metrics.mean(aged.drift),
            "relative RMS",
            aged.drift.size,
            {"interval": block_interval(aged.drift), "by_position": by_position(found, first)},
        ),
    ]
    return [
        origin.record(check, value, unit, count, subject, **more, **shared)
        for check, value, unit, count, more in figures
    ]
