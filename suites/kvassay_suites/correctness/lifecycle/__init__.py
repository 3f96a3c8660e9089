"""The life cycle as a state machine: random sequences of operations beside a list of tokens.

docs/lifecycle.md says what each operation must do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvassay.suite import Depth, Target, Task

from ...common.specs import ONE_LAYER

#: Sequences of operations a target, and their longest length.
EFFORTS: Final[Mapping[Depth, tuple[int, int]]] = {
    "quick": (10, 20),
    "default": (60, 30),
    "full": (2000, 50),
}


def tasks(suite: str, target: Target, depth: Depth) -> Sequence[Task]:
    """One task: hypothesis draws the operations, the same ones for every target."""
    sequences, steps = EFFORTS[depth]
    return [
        Task(
            suite=suite,
            label=f"life cycle: {sequences} sequences of operations",
            function=f"{__name__}.measure:measure",
            arguments={
                **{"backend": target.backend, "variant": target.variant},
                **{"sequences": sequences, "steps": steps},
            },
            target=target,
            stage=ONE_LAYER,
            weight=0.15 * sequences,
        )
    ]
