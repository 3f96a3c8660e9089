"""Faults seen in the field, each as a small case that a cache must handle or refuse by name.

docs/faults.md lists them by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvassay.suite import Request, Target, Task

from . import (
    heads,
    identity,
    inputs,
    layout,
    lifecycle,
    memory,
    packing,
    processes,
    running,
    values,
)
from .case import CASES, Case

#: Each registers its cases when it is imported.
MODULES: Final = (
    *(layout, packing, values, inputs, heads, lifecycle),
    *(identity, memory, running, processes),
)
#: Cases that start Python processes of their own: a second or more each.
SLOW: Final = frozenset({5, 17, 25, 41})


class FaultSuite:
    """Every case for every target: part of the correctness suite, whose rule they feed."""

    name = "correctness"

    def tasks(self, request: Request) -> Sequence[Task]:
        """One task a case and target; a quick look leaves out those that start processes."""
        quick = request.depth == "quick"
        numbers = [n for n in sorted(CASES) if not (quick and n in SLOW)]
        return [_task(target, CASES[n]) for target in request.targets for n in numbers]


def _task(target: Target, one: Case) -> Task:
    return Task(
        suite="correctness",
        label=f"fault {one.number}: {one.name}",
        function=f"{__name__}.measure:measure",
        arguments={"backend": target.backend, "variant": target.variant, "number": one.number},
        target=target,
        stage=one.stage,
        weight=3.0 if one.number in SLOW else 0.5,
    )


suite = FaultSuite()
