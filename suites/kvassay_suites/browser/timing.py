"""A fused decode step in an engine and in this process by turns, each sample long enough."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import kvassay
from kvassay.protocol import Backend, Cache, FloatArray
from kvassay.suite import Depth

from ..common.inputs import gaussian
from .link import EngineError
from .remote import RemoteBackend, RemoteCache

#: A sample lasts this many milliseconds and steps of the engine's clock, here too. Short ones fit
#: between other processes' turns; one of fewer than 50 steps is refused (page/clock.mjs).
_LEAST_MS: Final = 2.0
_STEPS: Final = 60
_CHUNK: Final = 1024
_LEAST_SAMPLES: Final = 4
#: How far apart the quartiles of the samples may be.
_STEADY: Final = 1.5
#: Turns before the first that counts: engines compile hot code again.
_WARM_UP: Final = 20
#: How samples of a busy machine are taken again: after how many seconds that it is left alone, and
#: how many times as many. Steadiness alone decides whether samples count, never their ratio.
_SITTINGS: Final = ((0.0, 1), (5.0, 2), (20.0, 4))


#: One sample in the engine, as its page describes it, and seconds of one here.
Sample = tuple[dict[str, Any], float]
Turn = Callable[[], Sample]


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
    "quick": Shape(1, 4, 128, 1024, 25),
    "default": Shape(2, 8, 128, 4096, 41),
    "full": Shape(8, 32, 128, 4096, 101),
}


@dataclass(frozen=True)
class Times:
    """Seconds of one step, sample by sample, and evidence."""

    engine: list[float]
    own: list[float]
    detail: dict[str, Any]

    @property
    def median(self) -> float:
        """Of the samples in the engine; NaN without any."""
        return statistics.median(self.engine) if self.engine else math.nan

    @property
    def ratio(self) -> float:
        """Median in the engine over the median here."""
        return self.median / statistics.median(self.own)

    @property
    def evidence(self) -> dict[str, Any]:
        """For the record: every sample in microseconds, and why they say nothing, if so."""
        return {
            **self.detail,
            "reason": self.problem,
            "engine_us": [round(1e6 * seconds, 1) for seconds in self.engine],
            "wasmtime_us": [round(1e6 * seconds, 1) for seconds in self.own],
        }

    @property
    def problem(self) -> str:
        """Why these samples say nothing, "" if they do."""
        for side, seconds in (("engine", self.engine), ("wasmtime", self.own)):
            if len(seconds) < _LEAST_SAMPLES:
                return f"{side}: {len(seconds)} samples are long enough for its clock"
            low, _, high = statistics.quantiles(seconds, n=4)
            if high > _STEADY * low:
                return f"{side}: quartiles {1e6 * low:.0f} and {1e6 * high:.0f} us: machine busy"
        return ""


def beside(backend: RemoteBackend, own: Backend, shape: Shape) -> Times:
    """Samples by turns; raises EngineError where the two give other bits."""
    q = gaussian(3, shape.query_heads, shape.head_dim)
    step = float(backend.call("clock")[0]["step"])
    least = max(_LEAST_MS, _STEPS * step)
    with backend.prepare(shape.spec) as there, own.prepare(shape.spec) as here:
        assert isinstance(there, RemoteCache)
        for cache in (there, here):
            _fill(cache, shape)
        expected = here.attend(0, q).tobytes()

        def turn() -> Sample:
            head, (out,) = backend.call(
                "time", q.tobytes(), cache=there.handle, layer=0, step=step, least=least
            )
            if out != expected:
                raise EngineError("what was timed in the engine has other bits than here")
            return head, _own_sample(here, q, least)

        return steady(turn, shape.samples, step)


def steady(turn: Turn, samples: int, step: float) -> Times:
    """Samples until they say something, later and longer each time; the last if they never do."""
    given_up: list[str] = []
    for pause, longer in _SITTINGS:
        time.sleep(pause)
        for _ in range(_WARM_UP):
            turn()
        found = _times([turn() for _ in range(longer * samples)], step, given_up)
        if not found.problem:
            break
        given_up.append(found.problem)
    return found


def _times(
    turns: Sequence[tuple[dict[str, Any], float]], step: float, given_up: list[str]
) -> Times:
    found = [sample for sample, _ in turns if not sample["refused"]]
    return Times(
        engine=[sample["ms"] / 1e3 / sample["repeats"] for sample in found],
        own=[seconds for _, seconds in turns],
        detail={
            "clock_step_ms": step,
            "least_steps": min((sample["steps"] for sample in found), default=0),
            "refused": len(turns) - len(found),
            "given_up": [*given_up],
        },
    )


def _own_sample(cache: Cache, q: FloatArray, least: float) -> float:
    """Seconds of one call."""
    start, seconds, repeats = time.perf_counter(), 0.0, 0
    while 1e3 * seconds < least:
        cache.attend(0, q)
        repeats += 1
        seconds = time.perf_counter() - start
    return seconds / repeats


def _fill(cache: Cache, shape: Shape) -> None:
    for start in range(0, shape.tokens, _CHUNK):
        count = min(_CHUNK, shape.tokens - start)
        k, v = gaussian(10 + start, 2, count, shape.kv_heads, shape.head_dim)
        cache.append(0, np.ascontiguousarray(k), np.ascontiguousarray(v))
