"""Bits for each layer's keys and values, by what each alone does to the model's predictions.

Small errors of different layers add up in KL, and a bit more quarters a layer's error (as for any
scalar code, 4^-b), so one pass a layer and stream at a single rate tells what every rate costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..errors import InputError
from ..streams import RATES
from .layers import allocate_bits
from .outcome import Outcome

#: Of the stream that is measured; all others are fp16.
PROBE_BITS: Final = 3.0
_CODEC: Final = "turbo"


@dataclass(frozen=True)
class Allocation:
    """Bits of keys and values by layer, with at most `mean_bits` over all streams.

    predicted, uniform: next-token KL in nats that the single layers add up to, with these bits and
    with `mean_bits` everywhere.
    """

    mean_bits: float
    keys: tuple[float, ...]
    values: tuple[float, ...]
    predicted: float
    uniform: float

    @property
    def base(self) -> tuple[float, float]:
        """The most frequent bits of keys and values: the fields of a spec that layers override."""
        pairs = Counter(zip(self.keys, self.values, strict=True))
        return max(pairs, key=lambda pair: (pairs[pair], pair))

    @property
    def arm(self) -> str:
        """The text of the arm."""
        layers: dict[tuple[float, float], list[str]] = {}
        for layer, pair in enumerate(zip(self.keys, self.values, strict=True)):
            layers.setdefault(pair, []).append(str(layer))
        others = sorted(pair for pair in layers if pair != self.base)
        return " ".join(
            (_pair(self.base), *(f"{','.join(layers[pair])}={_pair(pair)}" for pair in others))
        )

    @property
    def fields(self) -> dict[str, Any]:
        """What makes a preset's spec this one: keys, values and layer_overrides."""
        base = _streams(self.base)
        overrides = {}
        for layer, pair in enumerate(zip(self.keys, self.values, strict=True)):
            changed = {n: text for n, text in _streams(pair).items() if text != base[n]}
            if changed:
                overrides[layer] = changed
        return {**base, "layer_overrides": overrides}


def probes(layers: int) -> list[str]:
    """Arms that store one stream of one layer in codes: keys and values of layer 0, 1, ..."""
    code = f"{_CODEC}:{PROBE_BITS:g}"
    return [
        f"fp16/fp16 {layer}={pair}"
        for layer in range(layers)
        for pair in (f"{code}/fp16", f"fp16/{code}")
    ]


def losses(outcomes: Iterable[Outcome], layers: int) -> list[float]:
    """Mean next-token KL of each probe, nats, in the order of `probes`; over texts by position.

    Raises InputError for a probe that was not measured.
    """
    return mean_losses(outcomes, probes(layers))


def mean_losses(outcomes: Iterable[Outcome], arms: Sequence[str]) -> list[float]:
    """The same for any arms, in their order."""
    sums: dict[str, tuple[float, int]] = {}
    for one in outcomes:
        kl, positions = sums.get(one.arm, (0.0, 0))
        sums[one.arm] = kl + one.kl, positions + one.positions
    for arm in arms:
        if arm not in sums:
            raise InputError(f"allocation: {arm!r} was not measured; measure every layer")
    return [sums[arm][0] / sums[arm][1] for arm in arms]


def allocate(found: Sequence[float], mean_bits: float) -> Allocation:
    """Bits of least total loss by `allocate_bits`. found: as of `losses`.

    Raises InputError where the lowest rate does not fit into `mean_bits`.
    """
    rates = RATES[_CODEC]
    curves = [{rate: _at(loss, rate) for rate in rates} for loss in found]
    bits = allocate_bits(curves, mean_bits)
    return Allocation(
        mean_bits,
        keys=bits[::2],
        values=bits[1::2],
        predicted=sum(_at(loss, rate) for loss, rate in zip(found, bits, strict=True)),
        uniform=sum(_at(loss, mean_bits) for loss in found),
    )


def _at(loss: float, bits: float) -> float:
    return float(loss * 4.0 ** (PROBE_BITS - bits))


def _streams(pair: tuple[float, float]) -> dict[str, str]:
    keys, values = pair
    return {"keys": f"{_CODEC}:{keys:g}", "values": f"{_CODEC}:{values:g}"}


def _pair(pair: tuple[float, float]) -> str:
    return "/".join(_streams(pair).values())
