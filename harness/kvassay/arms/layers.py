"""Codecs for the layers of a model: protected layers, and bits by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import InputError, SpecError
from ..vector_codec import VectorCodec, codec


def layer_codecs(
    name: str,
    layers: int,
    *,
    head_dim: int,
    bits: float | Sequence[float] | None = None,
    role: str = "key",
    protected: Iterable[int] = (),
    **params: Any,
) -> tuple[VectorCodec, ...]:
    """One codec a layer: `name` at its bits, and fp16 in protected layers.

    bits: one rate, or one a layer. protected: layers, negative ones counted from the end. Raises
    SpecError for a layer that does not exist and another number of rates than layers.
    """
    for layer in protected:
        if not -layers <= layer < layers:
            raise SpecError(f"layer_codecs: protected layer {layer}: there are {layers} layers")
    kept = {layer % layers for layer in protected}
    rates = list(bits) if isinstance(bits, Sequence) else [bits] * layers
    if len(rates) != layers:
        raise SpecError(f"layer_codecs: {len(rates)} rates for {layers} layers; give one a layer")
    return tuple(
        codec("fp16", head_dim=head_dim, role=role)
        if layer in kept
        else codec(name, head_dim=head_dim, bits=rate, role=role, **params)
        for layer, rate in enumerate(rates)
    )


def allocate_bits(errors: Sequence[Mapping[float, float]], mean_bits: float) -> tuple[float, ...]:
    """Bits a layer of least total error with at most `mean_bits` on average.

    errors: for each layer, the measured error at every rate that may be chosen. Greedy by error
    saved a bit, on the lower convex hull of each layer, which is optimal wherever the budget lets a
    step be taken whole (Shoham and Gersho 1988). Raises InputError where the lowest rates do not
    fit.
    """
    if not errors or not all(errors):
        raise InputError("allocate_bits: errors are empty; give at least one rate a layer")
    hulls = [_hull(curve) for curve in errors]
    places = [0] * len(hulls)
    left = mean_bits * len(hulls) - sum(hull[0][0] for hull in hulls)
    if left < -1e-9:
        raise InputError(f"allocate_bits: {mean_bits:g} bits are less than the lowest rates take")
    while True:
        steps = [
            ((hull[at][1] - hull[at + 1][1]) / (hull[at + 1][0] - hull[at][0]), layer)
            for layer, (hull, at) in enumerate(zip(hulls, places, strict=True))
            if at + 1 < len(hull) and hull[at + 1][0] - hull[at][0] <= left + 1e-9
        ]
        if not steps:
            return tuple(hull[at][0] for hull, at in zip(hulls, places, strict=True))
        layer = max(steps, key=lambda step: (step[0], -step[1]))[1]
        hull, at = hulls[layer], places[layer]
        left -= hull[at + 1][0] - hull[at][0]
        places[layer] += 1


def _hull(curve: Mapping[float, float]) -> list[tuple[float, float]]:
    """(bits, error) of the rates on the lower convex hull, by bits, errors falling."""
    hull: list[tuple[float, float]] = []
    for bits, error in sorted(curve.items()):
        if hull and error >= hull[-1][1]:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], (bits, error)):
            hull.pop()
        hull.append((bits, error))
    return hull


def _slope(a: tuple[float, float], b: tuple[float, float]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])
