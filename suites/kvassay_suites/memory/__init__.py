"""Memory: what a cache really holds, at its peak too, beside what it bills and what fp16 takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kvassay.suite import Depth, Request, Suite, Target, Task

from ..common.specs import ONE_LAYER

BASELINE: Final = "fp16"
#: Tokens from which on scratch must not grow.
SHORT: Final = 1024


@dataclass(frozen=True)
class Effort:
    """What a depth means: sizes of the held cache, sessions, (tokens, chunk) of the peaks, the
    long context of the scratch, the contexts over which memory grows, MiB of fp16 at a peak."""

    layers: int
    tokens: int
    sessions: int
    peaks: tuple[tuple[int, int], ...]
    long: int = 65536
    growth: tuple[int, ...] = (1024, 4096, 16384, 65536)
    mebibytes: int = 2


EFFORTS: Final[Mapping[Depth, Effort]] = {
    "quick": Effort(2, 512, 10, ((1024, 1024),), 16384, (1024, 4096, 16384)),
    "default": Effort(2, 1024, 100, ((1024, 1024), (4096, 4096), (4096, 64))),
    "full": Effort(
        *(4, 4096, 1000),
        tuple((n, chunk) for n in (1024, 4096, 16384, 65536) for chunk in (n, 64)),
        mebibytes=256,
    ),
}


class MemorySuite(Suite):
    """Every target and preset, each measurement in a fresh process."""

    name = "memory"

    def tasks(self, request: Request) -> Sequence[Task]:
        """Four kinds of tasks; peaks of all presets go together, since they share a baseline."""
        effort = EFFORTS[request.depth]
        tasks = []
        for target in request.targets:
            tasks += _peak_tasks(target, request, effort)
            tasks.append(
                _task(
                    *(target, "", "growth", "memory over tokens", 4.0 * len(request.presets)),
                    presets=list(request.presets),
                    lengths=list(effort.growth),
                    append=request.depth == "full",
                )
            )
            for preset in request.presets:
                tasks += [
                    _task(
                        *(target, preset, "held", f"{preset} bytes held", 4.0),
                        layers=effort.layers,
                        tokens=effort.tokens,
                        sessions=effort.sessions,
                    ),
                    _task(
                        *(target, preset, "scratch", f"{preset} scratch", 5.0),
                        lengths=[SHORT, effort.long],
                        append=request.depth == "full",
                    ),
                ]
        return tasks


def _peak_tasks(target: Target, request: Request, effort: Effort) -> list[Task]:
    judged = [preset for preset in request.presets if preset != BASELINE]
    if not judged:
        return []
    return [
        _task(
            *(target, "", "peaks", f"peak at {tokens} tokens {way}", 2.0 + 2.0 * len(judged)),
            presets=judged,
            tokens=tokens,
            chunk=chunk,
            mebibytes=effort.mebibytes,
            trace=False,
        )
        for tokens, chunk in effort.peaks
        for way in ("at once" if chunk == tokens else f"by {chunk}",)
    ]


def _task(
    target: Target, preset: str, function: str, label: str, weight: float, **arguments: Any
) -> Task:
    if preset:
        arguments["preset"] = preset
    return Task(
        suite="memory",
        label=label,
        function=f"kvassay_suites.memory.measure:{function}",
        arguments={"backend": target.backend, "variant": target.variant, **arguments},
        target=target,
        preset=preset,
        stage=ONE_LAYER,
        weight=weight,
    )


suite = MemorySuite()
