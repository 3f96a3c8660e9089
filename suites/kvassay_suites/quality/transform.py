"""What the transform of a token costs beside what reading fewer bytes saves."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

from kvassay.page.costs import Costs
from kvassay.protocol import Backend, Cache
from kvassay.records import Record
from kvassay.suite import Target
from kvassay_suites.performance.ceilings import ceilings
from kvassay_suites.performance.turns import take_turns
from kvassay_suites.performance.work import BASELINE, SHORT, Shape, tokens_of

from .measured import REAL, Origin, load
from .real_model import real_model

#: The context that reading fewer bytes is counted for, where the model allows it.
CONTEXT: Final = 8192
_ROUNDS, _SECONDS = 40, 4.0


@dataclass(frozen=True)
class Transform:
    """What storing a token and asking one query cost more than with fp16, in one layer.

    nanoseconds: of the thread. instructions: of the engine, where it counts them, else None; the
    nanoseconds are then these instructions at the pace of a whole query, which includes the way
    into the engine, so they are rather too many. saved_bytes: that a query reads less at
    `context` tokens. bandwidth: bytes a second.
    """

    nanoseconds: float
    instructions: int | None
    saved_bytes: int
    bandwidth: float
    context: int

    @property
    def share(self) -> float:
        """Time of the transform over the time that reading fewer bytes saves; inf if none."""
        saved = self.saved_bytes / self.bandwidth * 1e9
        return max(0.0, self.nanoseconds) / saved if saved > 0 else float("inf")


def measure(backend: str, variant: str, preset: str, model: str) -> list[Record]:
    """The share of the saved time that the transform of a token takes, in the model's shape.

    Times of a short page, where nothing but the transform, the rounding and the packing differs
    from fp16, taken by turns with it; instructions where the backend has an engine that counts.
    """
    target = Target(backend, variant)
    loaded, config = load(target), real_model(model).config
    shape = Shape(config.kv_heads, config.query_heads, config.head_dim)
    context = min(CONTEXT, config.context)
    with _calls(loaded, shape, preset) as calls:
        series = take_turns([calls], _ROUNDS, _SECONDS)
    spent = _instructions(loaded, shape, preset)
    if spent is None:
        differences = zip(
            series.sums("attend", less=["fp16 attend"]),
            series.sums("append", less=["fp16 append"]),
            strict=True,
        )
        nanoseconds = statistics.median(attend + append / SHORT for attend, append in differences)
    else:
        nanoseconds = _transform_of(spent) * series.median("attend") / spent["attend"]
    found = Transform(
        nanoseconds=nanoseconds,
        instructions=None if spent is None else round(_transform_of(spent)),
        saved_bytes=Costs.of(shape.spec(preset)).saved(context),
        bandwidth=ceilings().bandwidth,
        context=context,
    )
    return [transform_record(Origin(target, preset, REAL), found, series.rounds, series.steady)]


def transform_record(origin: Origin, found: Transform, rounds: int, steady: bool) -> Record:
    """The share; not measured where the machine was not steady."""
    return origin.record(
        "transform_share",
        found.share,
        "of the time saved",
        rounds if steady else 0,
        f"a token at {found.context}",
        **vars(found),
        steady=steady,
    )


@contextmanager
def _calls(loaded: Backend, shape: Shape, preset: str) -> Iterator[dict[str, Any]]:
    """Append of one short page, and attention over it, with the preset and with fp16."""
    k, v, q = tokens_of(shape, SHORT)
    caches = [loaded.prepare(shape.spec(name, short=True)) for name in (preset, BASELINE) * 2]

    def appended(cache: Cache) -> None:
        cache.reset()
        cache.append(0, k, v)

    try:
        for cache in caches[:2]:
            cache.append(0, k, v)
        yield {
            "attend": lambda: caches[0].attend(0, q[0]),
            "fp16 attend": lambda: caches[1].attend(0, q[0]),
            "append": lambda: appended(caches[2]),
            "fp16 append": lambda: appended(caches[3]),
        }
    finally:
        for cache in caches:
            cache.close()


def _transform_of(spent: Mapping[str, float]) -> float:
    """What a query and a stored token cost more than with fp16."""
    attend = spent["attend"] - spent["fp16 attend"]
    return attend + (spent["append"] - spent["fp16 append"]) / SHORT


def _instructions(loaded: Backend, shape: Shape, preset: str) -> dict[str, float] | None:
    """Instructions of each call, by the engine's count; None where there is no such engine."""
    if not hasattr(loaded, "in_one_memory"):
        return None
    metered = cast(Any, loaded).in_one_memory(metered=True)
    spent: dict[str, float] = {}
    with _calls(metered, shape, preset) as calls:
        for name, call in calls.items():
            call()  # what is made at first use is there from then on
            before = int(metered.spent)
            call()
            spent[name] = int(metered.spent) - before
    return spent
