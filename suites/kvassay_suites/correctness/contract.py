"""Two errors kept apart: a backend against its own decoded codes, and against the originals.

`oracle_error` holds the first to the bounds of docs/numeric-contract.md ("Measured error of the
contract"); `contract_growth` asks what the first adds to the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

import kvassay
from kvassay.protocol import Backend, FloatArray
from kvassay.records import Record
from kvassay.streams import parse_codec

from ..common.inputs import gaussian, tokens
from ..common.specs import MATH, make_spec, record
from ..oracle import attend64, decode_cache, scores64

Float64 = NDArray[np.float64]
#: Relative RMS bounds by family of the keys: of scores, and of outputs on plain inputs.
SCORE_BOUNDS: Final[Mapping[str, float]] = {
    "fp16": 1.5e-7,
    "turbo": 8.5e-3,
    "turbo+qjl": 8.5e-3,
    "kivi": 8e-4,
}
OUTPUT_BOUNDS: Final[Mapping[str, float]] = {
    "fp16": 4e-5,
    "turbo": 1e-3,
    "turbo+qjl": 1e-3,
    "kivi": 4e-5,
}
QUERIES: Final = 2
HEADS: Final = 64


@dataclass(frozen=True)
class Seen:
    """Scores (n, heads, tokens) and outputs (n, heads, d) three ways."""

    scores: tuple[Float64, Float64, Float64]
    outputs: tuple[Float64, Float64, Float64]
    #: |q| |k_hat| softmax scale / sqrt(d), (n, heads, tokens): the size of a plain logit.
    unit: Float64
    #: RMS of the decoded values.
    value_size: float
    #: RMS of the decoded values' error over that of the values.
    value_error: float


def look(backend: Backend, spec: kvassay.Spec, k: FloatArray, v: FloatArray, q: FloatArray) -> Seen:
    """Score and attend with each query alone, by the backend, by its codes, by the originals."""
    with backend.prepare(spec) as cache:
        cache.append(0, k, v)
        state = decode_cache(cache.dump())[0]
        scores = np.stack([cache.scores(0, row) for row in q]).astype(np.float64)
        outputs = np.stack([cache.attend(0, row) for row in q]).astype(np.float64)
    rest = (state.softmax_scale, state.span, state.sinks, len(k))
    pairs = ((state.k, state.v), (k.astype(np.float64), v.astype(np.float64)))
    decoded_s, exact_s = (np.stack([scores64(a, row, *rest) for row in q]) for a, _ in pairs)
    decoded_o, exact_o = (np.stack([attend64(a, b, row, *rest) for row in q]) for a, b in pairs)
    group = spec.query_heads // spec.kv_heads
    k_norm = np.repeat(np.linalg.norm(state.k, axis=-1).T, group, axis=0)
    q_norm = np.linalg.norm(q.astype(np.float64), axis=-1)[..., None]
    unit = q_norm * k_norm * state.softmax_scale / np.sqrt(spec.head_dim)
    return Seen(
        (scores, decoded_s, exact_s),
        (outputs, decoded_o, exact_o),
        unit,
        _rms(state.v),
        _rms(state.v - v) / _rms(v.astype(np.float64)),
    )


def _rms(x: Float64) -> float:
    return float(np.sqrt(np.mean(x**2)))


def _spec(keys: str, values: str, d: int, **fields: object) -> kvassay.Spec:
    return make_spec(
        kv_heads=2,
        query_heads=HEADS,
        head_dim=d,
        keys=keys,
        values=values,
        page_tokens=64,
        **fields,
    )


def measure_error(
    backend: str, variant: str, keys: str, values: str, head_dims: list[int]
) -> list[Record]:
    """Error against the oracle on plain and hard inputs, over its bound."""
    loaded = kvassay.load(backend, variant)
    family = parse_codec(keys, "keys").family
    records = []
    for number, d in enumerate(head_dims):
        scale = ("u8", "u8log", "fp16")[number % 3]
        spec = _spec(
            keys, values, d, scale=scale, key_centre="page", value_centre="frozen", sinks=2
        )
        ratios: dict[str, float] = {}
        for kind in ("gaussian", "outliers", "biased"):
            k, v = tokens(kind, d, 2 + 4 * 64, 2, d)
            seen = look(loaded, spec, k, v, gaussian(7, QUERIES, HEADS, d))
            score = _rms((seen.scores[0] - seen.scores[1]) / seen.unit)
            ratios[f"{kind} scores"] = score / SCORE_BOUNDS[family]
            if kind == "gaussian":
                output = _rms(seen.outputs[0] - seen.outputs[1]) / seen.value_size
                ratios[f"{kind} outputs"] = output / OUTPUT_BOUNDS[family]
        records.append(
            record(
                "correctness.oracle_error",
                MATH,
                backend,
                variant,
                max(ratios.values()),
                "of the stated bound",
                3 * seen.scores[0].size + seen.outputs[0].size,
                subject=f"{keys}/{values} d{d}",
                detail=ratios,
            )
        )
    return records


def measure_growth(
    backend: str, variant: str, keys: str, values: str, head_dims: list[int]
) -> list[Record]:
    """Total RMS error of the backend over that of exact arithmetic on the same codes, less 1."""
    loaded = kvassay.load(backend, variant)
    records = []
    for d in head_dims:
        shape = (4 * 64, 2, d)
        k, v = gaussian(31, *shape) * np.float32(1.1), gaussian(32, *shape) * np.float32(1.1)
        seen = look(loaded, _spec(keys, values, d), k, v, gaussian(33, QUERIES, HEADS, d))
        growth = {}
        for name, (own, decoded, exact) in (("scores", seen.scores), ("outputs", seen.outputs)):
            growth[name] = _rms(own - exact) / _rms(decoded - exact) - 1
        records.append(
            record(
                "correctness.contract_growth",
                MATH,
                backend,
                variant,
                max(growth.values()),
                "relative growth",
                seen.scores[0].size + seen.outputs[0].size,
                subject=f"{keys}/{values} d{d}",
                detail=growth,
            )
        )
    return records
