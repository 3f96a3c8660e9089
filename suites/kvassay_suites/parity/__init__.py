"""Parity: a target against the reference, to the last bit, over specs, shapes and chunkings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import kvassay
from kvassay.errors import KvassayError
from kvassay.protocol import Backend
from kvassay.suite import Request, Suite, Target, Task

from ..common.specs import MATH, ONE_LAYER, describe, instruction_stage
from ..golden.cases import CASES as GOLDEN
from ..golden.cases import spec_of as golden_spec
from .grid import Cases, cases, page_cases, preset_cases
from .plans import CROSS

#: Cases in one task of the full grid, a few seconds of work, and golden cases in one task.
BATCH = 12
GOLDEN_BATCH = 5


class ParitySuite(Suite):
    """Every target against the backend `reference`; the reference against its own chunkings."""

    name = "parity"
    every_variant = True
    emulated_too = True

    def tasks(self, request: Request) -> Sequence[Task]:
        """Tasks for each target; raises KvassayError where a target supports no case at all."""
        return [task for target in request.targets for task in _target_tasks(target, request)]


def _target_tasks(target: Target, request: Request) -> list[Task]:
    depth = request.depth
    backend = kvassay.load(target.backend, target.variant)
    exact = backend.exact

    def supported(found: Cases) -> Cases:
        return _supported(target, backend, found)

    tasks = [
        _task(target, f"page: {_label(case)}", [case], MATH)
        for case in page_cases(depth, supported)
    ]
    names = [name for name in GOLDEN if exact and backend.supports(golden_spec(name))]
    for start in range(0, len(names), GOLDEN_BATCH):
        tasks.append(_golden_task(target, names[start : start + GOLDEN_BATCH]))
    for name in request.presets:
        tasks += [
            _task(target, _label(case), [case], ONE_LAYER, name)
            for case in preset_cases(name, depth)
            if _executes(backend, case)
        ]
    grid = cases(depth, supported)
    step = BATCH if depth == "full" else 1
    # What the presets need of a layer is above; the grid is where vector code has its edges.
    stage = instruction_stage(target.backend, target.variant)
    for start in range(0, len(grid), step):
        batch = grid[start : start + step]
        label = _label(batch[0]) if step == 1 else f"cases {start} to {start + len(batch) - 1}"
        tasks.append(_task(target, label, batch, stage))
    return tasks


def _executes(backend: Backend, case: dict[str, Any]) -> bool:
    """Whether a target executes the spec of a case. Bytes of others bind exact targets alone."""
    if not backend.exact and case["plan"] == CROSS:
        return False
    return bool(backend.supports(kvassay.Spec.from_dict(case["spec"])))


def _supported(target: Target, backend: Backend, found: Cases) -> Cases:
    """The cases that the target executes: others are no evidence, none at all an error."""
    kept = [case for case in found if _executes(backend, case)]
    if not kept:
        why = backend.supports(kvassay.Spec.from_dict(found[0]["spec"])).reason
        raise KvassayError(
            f"{target.backend} {target.variant} supports none of parity's specs, of the first it "
            f"says: {why or 'nothing'}"
        )
    return kept


def _golden_task(target: Target, names: list[str]) -> Task:
    return Task(
        suite="parity",
        label=f"golden {' '.join(names)}",
        function="kvassay_suites.golden.measure:measure",
        arguments={"backend": target.backend, "variant": target.variant, "names": names},
        target=target,
        stage=MATH,
        weight=0.5,
    )


def _label(case: dict[str, Any]) -> str:
    spec = kvassay.Spec.from_dict(case["spec"])
    return f"{describe(spec)} {case['inputs']} t{case['threads']} {case['plan']}"


def _task(
    target: Target, label: str, batch: list[dict[str, Any]], stage: str, preset: str = ""
) -> Task:
    return Task(
        suite="parity",
        label=label,
        function="kvassay_suites.parity.measure:measure",
        arguments={
            "backend": target.backend,
            "variant": target.variant,
            "stage": stage,
            "subject": label,
            "cases": batch,
            "preset": preset,
        },
        target=target,
        preset=preset,
        stage=stage,
        weight=0.2 * len(batch),
    )


suite = ParitySuite()
