"""A hundred lives of caches in one linear memory: it may grow in the first, and never again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import kvassay
from kvassay.protocol import FloatArray
from kvassay.registry import REFERENCE
from kvassay.suite import Depth

from ..common.inputs import gaussian
from .remote import RemoteBackend, plain

SESSIONS: Final[Mapping[Depth, int]] = {"quick": 20, "default": 100, "full": 1000}
#: Two models that take turns: other shapes, other codecs.
_MODELS: Final = (
    ("turbo", {"layers": 2, "kv_heads": 3, "query_heads": 9, "head_dim": 64}),
    ("kivi", {"layers": 1, "kv_heads": 2, "query_heads": 8, "head_dim": 128}),
)
_PROMPT: Final = 300
_STEPS: Final = 4


@dataclass(frozen=True)
class Found:
    """Growths after the first session, the memory at the end, and the last session's outputs
    beside the reference's."""

    sessions: int
    growths: int
    bytes: int
    mismatches: int
    comparisons: int
    detail: dict[str, Any]


def run(backend: RemoteBackend, count: int) -> Found:
    """`count` sessions inside the engine (page/sessions.mjs)."""
    specs = [kvassay.preset(name, **shape) for name, shape in _MODELS]
    inputs = [_inputs(spec) for spec in specs]
    models = [{"spec": plain(spec), "prompt": _PROMPT, "steps": _STEPS} for spec in specs]
    parts = [array.tobytes() for arrays in inputs for array in arrays]
    head, outputs = backend.call("sessions", *parts, models=models, count=count)
    expected = [
        out for spec, arrays in zip(specs, inputs, strict=True) for out in _expected(spec, *arrays)
    ]
    first, last = head["memory"][0], head["memory"][-1]
    return Found(
        sessions=len(head["memory"]),
        growths=last["growths"] - first["growths"],
        bytes=last["bytes"],
        mismatches=sum(a != b for a, b in zip(expected, outputs, strict=True)),
        comparisons=sum(len(out) // 4 for out in expected),
        detail={
            "growths": [item["growths"] for item in (first, last)],
            "pages": [item["pages"] for item in (first, last)],
            "high_water": last["highWater"],
            "kept_bytes": last["used"] - first["used"],
        },
    )


def _inputs(spec: kvassay.Spec) -> tuple[FloatArray, FloatArray, FloatArray]:
    rows = gaussian(1, 2, _PROMPT, spec.kv_heads, spec.head_dim)
    return rows[0], rows[1], gaussian(2, spec.query_heads, spec.head_dim)


def _expected(spec: kvassay.Spec, k: FloatArray, v: FloatArray, q: FloatArray) -> list[bytes]:
    """The reference's outputs, layer by layer, after the prompt."""
    with kvassay.load(REFERENCE).prepare(spec) as cache:
        for layer in range(spec.layers):
            cache.append(layer, k, v)
        return [cache.attend(layer, q).tobytes() for layer in range(spec.layers)]
