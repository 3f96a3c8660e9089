"""Which quality tasks answer a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final

from kvassay import registry
from kvassay.errors import KvassayError
from kvassay.registry import BACKEND_GROUP
from kvassay.suite import Depth, Request, Target, Task
from kvassay_suites.common import ONE_LAYER

from .measured import REAL, SUITE, TINY

_PACKAGE: Final = "kvassay_suites.quality"
_DISTRIBUTION: Final = "kvassay"


@dataclass(frozen=True)
class Effort:
    """What a depth means.

    tokens: of the real model's text. layers: at most so many in its attention figures. every:
    distance of sampled queries, odd so that they meet every phase of a page filling up. shapes:
    of the one-layer fixture and the tiny transformers.
    """

    tokens: int
    layers: int
    every: int = 7
    shapes: tuple[str, ...] = ("mha", "gqa", "mqa")


EFFORTS: Final[Mapping[Depth, Effort]] = {
    "quick": Effort(tokens=320, layers=6, shapes=("gqa",)),
    "default": Effort(tokens=1024, layers=1000),
    "full": Effort(tokens=2048, layers=1000),
}


@dataclass(frozen=True)
class Pass:
    """A target that runs the real model, and those that take over its figures after a check."""

    target: Target
    followers: tuple[Target, ...] = ()


class QualitySuite:
    """One layer, tiny transformers, the real model; in scope full also ordinary chat."""

    name = SUITE

    def tasks(self, request: Request) -> Sequence[Task]:
        """Long tasks first, so that two workers end together."""
        effort = EFFORTS[request.depth]
        passes = plan_passes(request.targets)
        tasks = [
            task
            for preset in request.presets
            for one in passes
            for task in _model_tasks(one, preset, request, effort)
        ]
        if tasks:
            tasks.append(_full_precision(request.model, effort))
        for target in request.targets:
            for preset in request.presets:
                tasks += _model_free_tasks(target, preset, effort)
        return tasks


def plan_passes(targets: Sequence[Target]) -> list[Pass]:
    """One pass for all exact backends that ship with the project, one for every other target.

    What ships shares, since the real model takes a slow backend minutes. A backend from elsewhere
    always shows its own figures, and its crash is its own.
    """
    sharing = [target for target in targets if _shipped(target.backend) and _exact(target)]
    passes = [Pass(target) for target in targets if target not in sharing]
    if sharing:
        leader, *followers = sorted(sharing, key=_slowness)
        passes.insert(0, Pass(leader, tuple(followers)))
    return passes


def _shipped(backend: str) -> bool:
    return any(
        point.name == backend and point.dist is not None and point.dist.name == _DISTRIBUTION
        for point in entry_points(group=BACKEND_GROUP)
    )


def _exact(target: Target) -> bool:
    """Whether it loads and is exact; one that does not load fails in its own task."""
    try:
        return registry.load(target.backend, target.variant).exact
    except KvassayError:
        return False


def _slowness(target: Target) -> tuple[bool, bool]:
    """Compiled before pure Python (which has no build id), the processor before an emulator; the
    sort is stable, and providers list their best variant first."""
    provider = registry.provider(target.backend)
    emulated = provider.variants()[target.variant].status == "emulated"
    return emulated, registry.load(target.backend, target.variant).build_id == ""


def _task(
    target: Target | None, preset: str, stage: str, module: str, weight: float, **arguments: Any
) -> Task:
    who = f"{target.backend}-{target.variant} {preset}" if target else "full precision"
    if target:
        arguments.update(backend=target.backend, variant=target.variant, preset=preset)
    return Task(
        suite=SUITE,
        label=f"{who} {module.replace('_', ' ')}",
        function=f"{_PACKAGE}.{module}:measure",
        arguments=arguments,
        target=target,
        preset=preset,
        stage=stage,
        weight=weight,
    )


def _model_tasks(one: Pass, preset: str, request: Request, effort: Effort) -> list[Task]:
    followers = [(follower.backend, follower.variant) for follower in one.followers]
    shared: dict[str, Any] = {"model": request.model, "followers": followers}
    tasks = [
        _task(
            one.target,
            preset,
            REAL,
            "teacher_forced",
            effort.tokens / 40,
            tokens=effort.tokens,
            layers=effort.layers,
            every=effort.every,
            **shared,
        )
    ]
    if request.scope == "full":
        tasks.append(_task(one.target, preset, REAL, "chat", 60.0, **shared))
    return tasks


def _full_precision(model: str, effort: Effort) -> Task:
    return _task(None, "", REAL, "full_precision", 4.0, model=model, tokens=effort.tokens)


def _model_free_tasks(target: Target, preset: str, effort: Effort) -> list[Task]:
    shapes = list(effort.shapes)
    return [
        _task(target, preset, ONE_LAYER, "one_layer", 1.0, shapes=shapes),
        _task(target, preset, TINY, "tiny_transformer", 3.0, shapes=shapes),
    ]
