"""Performance: what each backend's work costs in time, bytes and instructions, beside fp16.

Times take turns (`turns`), on the processor's own clock, with a fixed calibration loop among them;
every figure comes with the ratios of its pairs, so that `kvassay gate --baseline` can compare runs
and history survives a change of machine. Nothing but the protocol is used, so anybody's backend
has the same figures. Belongs to scope full: the default gate does not run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from kvassay.suite import Depth, Request, Suite, Target, Task

from ..common.specs import instruction_stage
from .work import BASELINE, Shape


@dataclass(frozen=True)
class Effort:
    """How much is measured: shape, context lengths, rounds of turns, seconds a length may take.

    Lengths leave 4 tokens over whole pages, so that every preset's residual is as long at each.
    """

    shape: Shape
    lengths: tuple[int, ...]
    rounds: int
    seconds: float
    decode_tokens: int


EFFORTS: Final[Mapping[Depth, Effort]] = {
    "quick": Effort(Shape(1, 4, 64), (516,), 11, 5.0, 0),
    "default": Effort(Shape(2, 8, 128), (1028, 4100), 21, 30.0, 8),
    "full": Effort(Shape(4, 16, 128), (1028, 4100, 16388), 31, 90.0, 16),
}


class PerformanceSuite(Suite):
    """Tasks that run alone, so that nothing else of the run disturbs their times."""

    name = "performance"
    command_scope = "full"
    scope = "full"

    def tasks(self, request: Request) -> Sequence[Task]:
        """The machine's ceilings first, then every target at every length."""
        effort = EFFORTS[request.depth]
        presets = list(dict.fromkeys((BASELINE, *request.presets)))
        tasks = [
            Task("performance", "ceilings of the machine", f"{__name__}.ceilings:measure",
                 weight=3.0, alone=True)
        ]  # fmt: skip
        for target in request.targets:
            for tokens in effort.lengths:
                tasks += _length(target, presets, tokens, effort)
            tasks.append(
                _task(
                    *(target, "instructions:measure", "instructions", 30.0),
                    presets=presets,
                    tokens=effort.lengths[0],
                )
            )
            if effort.decode_tokens:
                tasks.append(
                    _task(
                        *(target, "decoding:measure", "tokens a second", 30.0),
                        presets=presets,
                        tokens=effort.decode_tokens,
                        model=request.model,
                    )
                )
        return tasks


def _length(target: Target, presets: list[str], tokens: int, effort: Effort) -> list[Task]:
    shared: dict[str, Any] = {"presets": presets, "tokens": tokens, "shape": asdict(effort.shape)}
    return [
        _task(
            *(target, "steps:measure", f"steps at {tokens} tokens", effort.seconds),
            **shared,
            rounds=effort.rounds,
            seconds=effort.seconds,
            judged=tokens == effort.lengths[-1],
        ),
        _task(
            *(target, "fresh:measure", f"fresh caches of {tokens} tokens", effort.seconds),
            **shared,
            seconds=effort.seconds / 2,
        ),
        _task(target, "holding:measure", f"bytes at {tokens} tokens", 5.0, **shared),
    ]


def _task(target: Target, function: str, label: str, weight: float, **arguments: Any) -> Task:
    return Task(
        suite="performance",
        label=label,
        function=f"{__name__}.{function}",
        arguments={"backend": target.backend, "variant": target.variant, **arguments},
        target=target,
        stage=instruction_stage(target.backend, target.variant),
        weight=weight,
        alone=True,
    )


suite = PerformanceSuite()
