"""WebAssembly: what a linear memory does over many sessions and at its cap, and what work costs in
instructions, which is the same on every machine.

Only targets whose caches live in a linear memory are measured (`evidence` of their backend says
so); of others the suite records that they have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import kvassay
from kvassay.suite import Depth, Request, Suite, Target, Task

from ..common.specs import instruction_stage

#: Sessions in one memory. The rule is about a hundred; a quick look sees growth that repeats too.
SESSIONS: Final[Mapping[Depth, int]] = {"quick": 10, "default": 100, "full": 100}


class WasmSuite(Suite):
    """Three tasks a target with a linear memory, and one that says which targets have one."""

    name = "wasm"
    every_variant = True

    def tasks(self, request: Request) -> Sequence[Task]:
        """The listing comes first, so that a request without such a target has a task too."""
        linear = [target for target in request.targets if _has_linear_memory(target)]
        listed = [[t.backend, t.variant, t in linear] for t in request.targets]
        listing = Task(
            suite=self.name,
            label="linear memories",
            function="kvassay_suites.wasm.measure:list_memories",
            arguments={"targets": listed},
        )
        return [listing, *(task for target in linear for task in _tasks(target, request))]


def _has_linear_memory(target: Target) -> bool:
    loaded = kvassay.load(target.backend, target.variant)
    return bool(getattr(loaded, "evidence", {}).get("linear_memory"))


def _tasks(target: Target, request: Request) -> list[Task]:
    sessions = SESSIONS[request.depth]
    return [
        _task(target, "sessions", f"{sessions} sessions in one memory", 5.0, sessions=sessions),
        _task(target, "cap", "a cap that is reached", 1.0),
        _task(target, "fuel", "instructions", 3.0),
    ]


def _task(target: Target, function: str, label: str, weight: float, **arguments: Any) -> Task:
    return Task(
        suite="wasm",
        label=label,
        function=f"kvassay_suites.wasm.measure:{function}",
        arguments={"backend": target.backend, "variant": target.variant, **arguments},
        target=target,
        stage=instruction_stage(target.backend, target.variant),
        weight=weight,
    )


suite = WasmSuite()
