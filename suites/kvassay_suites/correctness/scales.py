"""The exact identities of the two scales, vector by vector, from stored codes alone.

With codeword u of vector x and c their cosine: the unbiased scale |x|^2 / <x, u> gives
<x_hat, x> = |x|^2 and squared error |x|^2 (1/c^2 - 1); the scale of least error
<x, u> / |u|^2 gives <x - x_hat, x_hat> = 0 and |x|^2 (1 - c^2) (EDEN, arXiv 2108.08842).
Stored scales are rounded, so what is judged is how far one lies beyond the rounding of the exact
scale.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

import kvassay
from kvassay.records import Record

from ..common.inputs import gaussian
from ..common.specs import MATH, record
from ..oracle import Page, read_dump
from ..oracle.rotation import KEYS, VALUES, gain_exponent, rotation
from .readout import KV_HEADS, PAGE, plain_spec

Float64 = NDArray[np.float64]
#: In turn over the head dims; a quick look has one, and so takes what the presets store.
KINDS: Final = ("u8", "u8log", "fp16")


def measure(
    backend: str, variant: str, stream: str, codec: str, head_dims: list[int]
) -> list[Record]:
    """Worst relative deviation from the identities, rounding of the stored scale taken off."""
    loaded = kvassay.load(backend, variant)
    records = []
    for number, d in enumerate(head_dims):
        kind = KINDS[number % len(KINDS)]
        spec = plain_spec(d, **{stream: codec}, scale=kind, rounds=1 + number % 2)
        x = gaussian(20 + d, PAGE, KV_HEADS, d)
        with loaded.prepare(spec) as cache:
            cache.append(0, x, x)
            page = read_dump(cache.dump()).page(0, 0)
        unbiased = stream == "keys" and not codec.endswith("+qjl")
        scale, identity = _deviations(page, stream, x.astype(np.float64), kind, unbiased)
        records.append(
            record(
                "correctness.scale_identity",
                MATH,
                backend,
                variant,
                max(scale, identity),
                "relative error",
                PAGE * KV_HEADS,
                subject=f"{stream} {codec} d{d} {kind}",
                detail={"scale": scale, "squared_error": identity, "unbiased": unbiased},
            )
        )
    return records


def _deviations(
    page: Page, stream: str, x: Float64, kind: str, unbiased: bool
) -> tuple[float, float]:
    """How far scales and squared errors are from the identities, relative."""
    which = stream.removesuffix("s")
    exponent = gain_exponent(page.head_dim, page.rounds)
    gain = 2.0 ** (exponent / 2 - exponent // 2)
    turn = rotation(
        page.head_dim, page.header["seed"], KEYS if which == "key" else VALUES, page.rounds
    )
    u = (page.centroids(f"{which} codes") @ turn * gain).transpose(1, 0, 2)
    stored = page.scales(f"{which} scales", f"{which} maxima").T
    norm, dot, size = np.sum(x * x, -1), np.sum(x * u, -1), np.sum(u * u, -1)
    exact = norm / dot if unbiased else dot / size
    beyond = np.abs(stored - exact) - _rounding(page, which, kind, exact)
    c2 = dot**2 / (norm * size)
    x_hat = stored[..., None] * u
    off = stored / exact - 1
    # x* has the exact scale, x_hat = (1+off) x*. Unbiased: <x, x*> = |x|^2, |x*|^2 = |x|^2 / c^2;
    # else x - x* is orthogonal to x*, and |x*|^2 = |x|^2 c^2.
    expected = 1 - 2 * (1 + off) + (1 + off) ** 2 / c2 if unbiased else 1 - c2 + off**2 * c2
    error = np.sum((x - x_hat) ** 2, -1) / norm
    return max(0.0, float(np.max(beyond / exact))), float(np.max(np.abs(error - expected)))


def _rounding(page: Page, which: str, kind: str, exact: Float64) -> Float64:
    """Half a step of the stored scale at `exact`."""
    if kind == "fp16":
        step = 2.0 ** (np.floor(np.log2(exact)) - 10)
        return np.asarray(np.maximum(step, 2.0**-24) / 2)
    largest = page.real(f"{which} maxima")[None, :]
    if kind == "u8":
        return np.broadcast_to(largest / 255 / 2, exact.shape)
    return np.asarray(exact * (2.0 ** (1 / 32) - 1))
