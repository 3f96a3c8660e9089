"""What each codec of each stream costs a model's predictions, from one probe a layer.

A layer's small errors reach the prediction through what attention adds to the residual stream, and
KL grows with their square. So a layer's KL a unit of squared error is measured once, with both of
its streams in codes, and the errors of every codec on tensors of one captured pass do the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..arms import Outcome, StoredAttention, fitted, parse_arm
from ..arms.allocation import mean_losses
from ..arms.forward import FIRST_COUNTED
from ..models import Capture, Model, capture, passage
from .candidates import KEYS, PAGE, SINKS, VALUES, Stored

#: What both streams of a probed layer are stored as; a candidate of each.
PROBE: Final = (Stored("turbo", 3, "page"), Stored("turbo", 3))

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Errors:
    """Squared errors of what attention adds to the stream, and page bits: float64 (layers,
    codecs), keys of `KEYS` and values of `VALUES`."""

    keys: Doubles
    values: Doubles
    key_bits: Doubles
    value_bits: Doubles

    def __add__(self, other: Errors) -> Errors:
        """Over two texts; page bits are those of any."""
        return replace(self, keys=self.keys + other.keys, values=self.values + other.values)


@dataclass(frozen=True)
class Losses:
    """Next-token KL in nats that each codec of each stream costs alone, and its page bits: float64
    (layers, codecs), keys of `KEYS` and values of `VALUES`."""

    keys: Doubles
    values: Doubles
    key_bits: Doubles
    value_bits: Doubles


def probes(layers: int) -> list[str]:
    """Arms that store one layer in codes, all others in fp16."""
    pair = "/".join(one.arm for one in PROBE)
    return [f"fp16/fp16 {layer}={pair}" for layer in range(layers)]


def errors_of(model: Model, text: str, tokens: int) -> Errors:
    """Errors of all candidates on a text that `kvassay.models.PASSAGES` names."""
    return errors_on(model, capture(model, passage(text).tokens(model, tokens)))


def errors_on(model: Model, found: Capture) -> Errors:
    """Errors of all candidates on captured tensors, of the queries that meet a sealed page."""
    exact = _outputs(model, found, "fp16/fp16")[0]
    keys = [_against(exact, *_outputs(model, found, f"{one.arm}/fp16")) for one in KEYS]
    values = [_against(exact, *_outputs(model, found, f"fp16/{one.arm}")) for one in VALUES]
    return Errors(
        keys=np.stack([errors for errors, _ in keys], axis=1),
        values=np.stack([errors for errors, _ in values], axis=1),
        key_bits=np.stack([bits for _, bits in keys], axis=1),
        value_bits=np.stack([bits for _, bits in values], axis=1),
    )


def _outputs(model: Model, found: Capture, text: str) -> tuple[list[Doubles], Doubles]:
    """What attention adds to the stream in every layer, and page bits of the coded stream."""
    arm = parse_arm(text)
    first_page = replace(found, k=_page(found.k), v=_page(found.v))
    attention = StoredAttention(arm, fitted(arm, model.config, first_page), model.config)
    added: list[Doubles] = []
    bits: list[float] = []
    for layer, (q, k, v) in enumerate(zip(found.q, found.k, found.v, strict=True)):
        out = attention(layer, q, k, v)[FIRST_COUNTED:].reshape(-1, q.shape[1] * q.shape[2])
        added.append((out @ model.weights.layers[layer].attention_output.T).astype(np.float64))
        stored = attention.stored[layer]
        # The other stream is fp16 in pages of its own: 16 bits.
        bits.append(2 * 8 * stored.pages / stored.values - 16)
    return added, np.array(bits)


def _page(tensors: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float32], ...]:
    return tuple(one[: SINKS + PAGE] for one in tensors)


def _against(
    exact: Sequence[Doubles], found: Sequence[Doubles], bits: Doubles
) -> tuple[Doubles, Doubles]:
    squares = [float(np.square(a - b).sum()) for a, b in zip(exact, found, strict=True)]
    return np.array(squares), bits


def losses(outcomes: Iterable[Outcome], errors: Errors) -> Losses:
    """Losses of all candidates from outcomes of `probes` and errors, both over the same texts.

    Raises InputError for a probe that was not measured.
    """
    kl = np.array(mean_losses(outcomes, probes(len(errors.keys))))
    keys, values = PROBE
    probed = errors.keys[:, KEYS.index(keys)] + errors.values[:, VALUES.index(values)]
    unit = (kl / probed)[:, np.newaxis]
    return Losses(errors.keys * unit, errors.values * unit, errors.key_bits, errors.value_bits)
