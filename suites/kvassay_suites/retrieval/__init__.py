"""Stored vectors: whether their codes find what exact search finds, at which price (Experiment B).

What is judged is a mode (`kvassay.presets.STORED_MODES`) of a backend that has a scorer. Asked
about presets of caches alone, the suite compares scorers and counts bytes; asked about modes it
measures recall too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kvassay.presets import STORED_MODES
from kvassay.registry import REFERENCE
from kvassay.retrieval import scorers
from kvassay.suite import Depth, Request, Suite, Target, Task

from ..common.specs import instruction_stage
from .data import REAL

#: Data sets by depth: name, vectors, dimension. Those of the model come with its stage.
Plan = tuple[tuple[str, int, int], ...]
PLANS: Final[Mapping[Depth, Plan]] = {
    "quick": (("isotropic", 2000, 64), ("anisotropic", 2000, 64)),
    "default": (("isotropic", 20_000, 128), ("anisotropic", 20_000, 128), ("keys", 1024, 64)),
    "full": (
        *(("isotropic", 100_000, 128), ("anisotropic", 100_000, 128)),
        *(("isotropic", 20_000, 768), ("keys", 2048, 64), ("embeddings", 2000, 384)),
    ),
}


class RetrievalSuite(Suite):
    """A listing, then for each target with a scorer: bits, bytes, and what the modes asked for
    find."""

    name = "retrieval"
    judges = "stored"

    def tasks(self, request: Request) -> Sequence[Task]:
        """The listing comes first, so that a request without a scorer has a task too."""
        have = {name: set(variants) for name, variants in scorers().items()}
        able = [t for t in request.targets if t.variant in have.get(t.backend, ())]
        listed = [[t.backend, t.variant, t in able] for t in request.targets]
        listing = Task(
            suite=self.name,
            label="scorers",
            function="kvassay_suites.retrieval.measure:list_scorers",
            arguments={"targets": listed},
        )
        modes = [mode for mode in request.presets if mode in STORED_MODES]
        return [
            listing,
            *(task for target in able for task in _own_tasks(target)),
            *(task for target in able for task in _mode_tasks(target, request, modes)),
        ]


def _own_tasks(target: Target) -> list[Task]:
    tasks = [_task(target, "bytes_held", "bytes a vector", 1.0)]
    if target.backend != REFERENCE:
        tasks.append(_task(target, "bits", "bits", 5.0))
    return tasks


def _mode_tasks(target: Target, request: Request, modes: Sequence[str]) -> list[Task]:
    """The reference computes the same bits slowly: it gets the smallest sets."""
    plan = PLANS["quick" if target.backend == REFERENCE else request.depth]
    tasks = []
    for data, n, dim in plan if modes else ():
        where: dict[str, Any] = {"data": data, "n": n, "dim": dim, "model": request.model}
        weight = n * dim / 4e4
        tasks.append(_task(target, "recall", f"{data} {n} x {dim}", weight, **where, modes=modes))
    if modes and target.backend != REFERENCE:
        n = 200_000 if request.depth == "full" else 20_000
        tasks.append(_task(target, "cost", f"latency and memory, {n} vectors", 5.0, n=n))
    return tasks


def _task(target: Target, function: str, label: str, weight: float, **arguments: Any) -> Task:
    return Task(
        suite="retrieval",
        label=label,
        function=f"kvassay_suites.retrieval.measure:{function}",
        arguments={"backend": target.backend, "variant": target.variant, **arguments},
        target=target,
        stage=(
            "real model scalar"
            if arguments.get("data") in REAL
            else instruction_stage(target.backend, target.variant)
        ),
        weight=weight,
    )


suite = RetrievalSuite()
