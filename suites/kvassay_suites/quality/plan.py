"""Which quality tasks answer a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kvassay import registry
from kvassay.errors import KvassayError
from kvassay.plugins import BACKENDS, points
from kvassay.presets import preset as make_preset
from kvassay.records import Record
from kvassay.suite import Depth, Request, Suite, Target, Task
from kvassay_suites.common.specs import ONE_LAYER

from .measured import REAL, SUITE, TINY
from .tasks import FAMILIES
from .tasks.conclusions import conclude

#: The preset that all others are compared with: it has no codec.
BASELINE: Final = "fp16"
_PACKAGE: Final = "kvassay_suites.quality"
_DISTRIBUTION: Final = "kvassay"


@dataclass(frozen=True)
class Effort:
    """What a depth means.

    tokens: of the real model's text. layers: at most so many in its attention figures. every:
    distance of sampled queries, odd so that they meet every phase of a page filling up. shapes:
    of the one-layer fixture and the tiny transformers. small_window: tiny transformers also with
    a window of 32.
    """

    tokens: int
    layers: int
    every: int = 7
    shapes: tuple[str, ...] = ("mha", "gqa", "mqa")
    small_window: bool = True


EFFORTS: Final[Mapping[Depth, Effort]] = {
    "quick": Effort(tokens=320, layers=6, shapes=("gqa",), small_window=False),
    "default": Effort(tokens=1024, layers=1000),
    "full": Effort(tokens=2048, layers=1000),
}


@dataclass(frozen=True)
class Pass:
    """A target that runs the real model, and those that take over its figures after a check."""

    target: Target
    followers: tuple[Target, ...] = ()


class QualitySuite(Suite):
    """One layer, tiny transformers, the real model; in scope full also the task families."""

    name = SUITE
    needs_model = True

    def tasks(self, request: Request) -> Sequence[Task]:
        """A preset that a target does not execute has no tasks, so its rules stay unmeasured.

        Raises KvassayError for a target that executes none of the presets.
        """
        effort = EFFORTS[request.depth]
        tasks: list[Task] = []
        for preset in request.presets:
            targets = [target for target in request.targets if _supports(target, preset)]
            for one in plan_passes(targets):
                tasks += _model_tasks(one, preset, request, effort)
            for target in targets:
                tasks += _model_free_tasks(target, preset, effort)
                if request.scope == "full":
                    tasks += _controls(target, preset, request.model)
        _require_some(request, tasks)
        if tasks:
            tasks.append(_full_precision(request.model, effort))
        return tasks

    def conclude(self, records: Sequence[Record]) -> list[Record]:
        """What the conversations of all families say together, arm by arm."""
        return conclude(records)


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


def _supports(target: Target, preset: str) -> bool:
    """Whether it executes the preset; one that does not load fails in its own task."""
    spec = make_preset(preset, layers=1, kv_heads=2, query_heads=6, head_dim=64)
    try:
        return bool(registry.load(target.backend, target.variant).supports(spec))
    except KvassayError:
        return True


def _require_some(request: Request, tasks: Sequence[Task]) -> None:
    found = {task.target for task in tasks}
    for target in request.targets:
        if target not in found:
            raise KvassayError(
                f"{target.backend} {target.variant} supports none of the presets "
                f"{', '.join(request.presets)}"
            )


def _shipped(backend: str) -> bool:
    return any(
        point.name == backend and point.dist is not None and point.dist.name == _DISTRIBUTION
        for point in points(BACKENDS)
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
    if target:
        arguments.update(backend=target.backend, variant=target.variant, preset=preset)
    return Task(
        suite=SUITE,
        label=f"{module.replace('_', ' ')} {preset}".strip(),
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
        tasks += _family_tasks(one.target, preset, request.model)
        tasks += _experiments(one.target, preset, effort, shared)
    return tasks


def _experiments(
    target: Target, preset: str, effort: Effort, shared: Mapping[str, Any]
) -> list[Task]:
    """What the full scope measures with the real model besides answers."""
    text = {"tokens": effort.tokens, "every": effort.every}
    return [
        _task(target, preset, REAL, "free_running", 60.0, tokens=effort.tokens, **shared),
        _task(target, preset, REAL, "prefill", effort.tokens / 40, tokens=effort.tokens, **shared),
        _task(target, preset, REAL, "shadow", effort.tokens / 30, **text, **shared),
    ]


def _controls(target: Target, preset: str, model: str) -> list[Task]:
    """Control lanes, and what the transform costs; times are taken with nothing beside them."""
    tasks = [_task(target, preset, TINY, "lanes", 5.0)]
    if preset != BASELINE:
        timed = _task(target, preset, REAL, "transform", 6.0, model=model)
        tasks.append(replace(timed, alone=True))
    return tasks


def _family_tasks(target: Target, preset: str, model: str) -> list[Task]:
    """A task a conversation. Its weight is its own, whatever the preset, so that all presets of a
    conversation run one after another and share its full-precision pass."""
    conversations = [
        (family.name, number, conversation)
        for family in FAMILIES.values()
        for number, conversation in enumerate(family.conversations)
    ]
    return [
        replace(
            _task(
                target,
                preset,
                REAL,
                "tasks.measure",
                conversation.words / 60 + at * 1e-6,
                model=model,
                family=family,
                number=number,
                digest=conversation.digest,
            ),
            label=f"{family} {number} {preset}",
        )
        for at, (family, number, conversation) in enumerate(conversations)
    ]


def _full_precision(model: str, effort: Effort) -> Task:
    return _task(None, "", REAL, "full_precision", 4.0, model=model, tokens=effort.tokens)


def _model_free_tasks(target: Target, preset: str, effort: Effort) -> list[Task]:
    shapes = list(effort.shapes)
    return [
        _task(target, preset, ONE_LAYER, "one_layer", 1.0, shapes=shapes),
        _task(
            target,
            preset,
            TINY,
            "tiny_transformer",
            4.0,
            shapes=shapes,
            small_window=effort.small_window,
        ),
    ]
