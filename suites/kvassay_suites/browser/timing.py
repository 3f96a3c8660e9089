"""A fused decode step in an engine and in this process by turns, each sample long enough."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import kvassay
from kvassay.protocol import Backend, Cache, FloatArray
from kvassay.suite import Depth

from ..common_inputs import gaussian
from .link import EngineError
from .remote import RemoteBackend, RemoteCache

#: A sample lasts at least this, and 50 steps of the clock (page/clock.mjs).
_LEAST_SECONDS: Final = 0.02
_CHUNK: Final = 1024
#: Turns before the first that counts: engines compile hot code again.
_WARM_UP: Final = 3


@dataclass(frozen=True)
class Shape:
    """One layer of the preset turbo, and how often it is timed."""

    kv_heads: int
    query_heads: int
    head_dim: int
    tokens: int
    samples: int

    @property
    def spec(self) -> kvassay.Spec:
        """Its spec."""
        return kvassay.preset(
            "turbo",
            layers=1,
            kv_heads=self.kv_heads,
            query_heads=self.query_heads,
            head_dim=self.head_dim,
        )

    def describe(self) -> str:
        """For people."""
        return (
            f"turbo, {self.kv_heads} KV and {self.query_heads} query heads, d = {self.head_dim}, "
            f"{self.tokens} tokens"
        )


SHAPES: Final[Mapping[Depth, Shape]] = {
    "quick": Shape(1, 4, 128, 1024, 5),
    "default": Shape(2, 8, 128, 4096, 9),
    "full": Shape(8, 32, 128, 4096, 15),
}


@dataclass(frozen=True)
class Times:
    """Seconds of one step, sample by sample, and evidence."""

    engine: list[float]
    own: list[float]
    detail: dict[str, Any]

    @property
    def ratio(self) -> float:
        """Median in the engine over the median here."""
        return statistics.median(self.engine) / statistics.median(self.own)


def beside(backend: RemoteBackend, own: Backend, shape: Shape) -> Times:
    """Samples by turns; raises EngineError where the two give other bits."""
    q = gaussian(3, shape.query_heads, shape.head_dim)
    step = float(backend.call("clock")[0]["step"])
    with backend.prepare(shape.spec) as there, own.prepare(shape.spec) as here:
        assert isinstance(there, RemoteCache)
        for cache in (there, here):
            _fill(cache, shape)
        expected = here.attend(0, q)
        turns = [_turn(backend, there, here, q, step, expected) for _ in range(_WARM_UP)]
        repeats = [turns[-1][0]["repeats"], turns[-1][1]["repeats"]]
        turns = [
            _turn(backend, there, here, q, step, expected, *repeats) for _ in range(shape.samples)
        ]
    engine, own_seconds = (
        [turn[side]["seconds"] / turn[side]["repeats"] for turn in turns] for side in (0, 1)
    )
    return Times(
        engine,
        own_seconds,
        detail={
            "clock_step_ms": step,
            "steps": min(turn[0]["steps"] for turn in turns),
            "repeats": repeats,
            "engine_us": [round(1e6 * s, 1) for s in engine],
            "wasmtime_us": [round(1e6 * s, 1) for s in own_seconds],
        },
    )


def _turn(
    backend: RemoteBackend,
    there: RemoteCache,
    here: Cache,
    q: FloatArray,
    step: float,
    expected: FloatArray,
    engine_repeats: int | None = None,
    own_repeats: int | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One sample there and one here; repeats None finds out how many make a sample."""
    head, (out,) = backend.call(
        "time",
        q.tobytes(),
        cache=there.handle,
        layer=0,
        step=step,
        samples=1,
        repeats=engine_repeats,
    )
    if out != expected.tobytes():
        raise EngineError("what was timed in the engine has other bits than here; not measured")
    (sample,) = head["samples"]
    return {**sample, "seconds": sample["ms"] / 1e3}, _own_sample(here, q, own_repeats)


def _own_sample(cache: Cache, q: FloatArray, repeats: int | None) -> dict[str, Any]:
    count = repeats or 1
    while True:
        start = time.perf_counter()
        for _ in range(count):
            cache.attend(0, q)
        seconds = time.perf_counter() - start
        if repeats or seconds >= _LEAST_SECONDS:
            return {"seconds": seconds, "repeats": count}
        count *= 2


def _fill(cache: Cache, shape: Shape) -> None:
    for start in range(0, shape.tokens, _CHUNK):
        count = min(_CHUNK, shape.tokens - start)
        k, v = gaussian(10 + start, 2, count, shape.kv_heads, shape.head_dim)
        cache.append(0, np.ascontiguousarray(k), np.ascontiguousarray(v))
