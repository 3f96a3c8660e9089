"""Faults seen in the field, each as a small case that a cache must handle or refuse by name.

docs/faults.md lists them by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvassay.suite import Depth, Target, Task

from . import (
    bounds,
    heads,
    identity,
    inputs,
    layout,
    lifecycle,
    memory,
    packing,
    processes,
    running,
    states,
    values,
)
from .case import CASES, Case

#: Each registers its cases when it is imported.
MODULES: Final = (
    *(layout, packing, values, inputs, heads, lifecycle),
    *(identity, memory, running, processes, states, bounds),
)
#: Cases that start Python processes of their own: a second or more each.
SLOW: Final = frozenset({5, 17, 25, 41, 51})


def tasks(suite: str, target: Target, depth: Depth) -> Sequence[Task]:
    """One task a case; a quick look leaves out those that start processes."""
    numbers = [n for n in sorted(CASES) if not (depth == "quick" and n in SLOW)]
    return [_task(suite, target, CASES[n]) for n in numbers]


def _task(suite: str, target: Target, one: Case) -> Task:
    return Task(
        suite=suite,
        label=f"fault {one.number}: {one.name}",
        function=f"{__name__}.measure:measure",
        arguments={"backend": target.backend, "variant": target.variant, "number": one.number},
        target=target,
        stage=one.stage,
        weight=3.0 if one.number in SLOW else 0.5,
    )
