"""Correctness: does a backend do what its spec says, by theory and by a float64 oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import kvassay
from kvassay.errors import KvassayError
from kvassay.suite import Depth, Request, Suite, Target, Task

from ..common.specs import (
    CODEC_PAIRS,
    HEAD_DIMS,
    KEY_CODECS,
    MATH,
    ONE_LAYER,
    VALUE_CODECS,
    make_spec,
)
from . import faults, lifecycle

NAME: Final = "correctness"
#: What a quick look takes: the codecs of the presets.
QUICK = ("fp16", "turbo:3.5", "turbo:3", "turbo:3+qjl", "kivi:2")
QUICK_PAIRS = (("turbo:3.5", "turbo:3.5"), ("kivi:2", "kivi:2"), ("fp16", "fp16"))


class CorrectnessSuite(Suite):
    """Every target against theory, identities and the oracle."""

    name = NAME

    def tasks(self, request: Request) -> Sequence[Task]:
        """Tasks for each target; raises KvassayError where a target supports no codec at all."""
        return [task for target in request.targets for task in _target_tasks(target, request)]


def _head_dims(depth: Depth, number: int) -> list[int]:
    """All, or some in turn so that every codec meets every kind of head dim among its pairs."""
    if depth == "full":
        return list(HEAD_DIMS)
    if depth == "quick":
        return [HEAD_DIMS[number % len(HEAD_DIMS)]]
    return [HEAD_DIMS[(number + step) % len(HEAD_DIMS)] for step in (0, 3, 5)]


def _target_tasks(target: Target, request: Request) -> list[Task]:
    depth = request.depth
    keys = _supported(target, "keys", KEY_CODECS)
    values = _supported(target, "values", VALUE_CODECS)
    pairs = [(k, v) for k, v in CODEC_PAIRS if k in keys and v in values]
    if depth == "quick":
        keys = [name for name in keys if name in QUICK] or keys[:1]
        values = [name for name in values if name in QUICK] or values[:1]
        pairs = [pair for pair in pairs if pair in QUICK_PAIRS] or pairs[:1]
    tasks = []
    for stream, codecs in (("keys", keys), ("values", values)):
        for number, codec in enumerate(codecs):
            arguments = {"stream": stream, "codec": codec, "head_dims": _head_dims(depth, number)}
            tasks.append(_task(target, "distortion", f"{stream} {codec}", MATH, **arguments))
            if codec.startswith("turbo"):
                tasks.append(_task(target, "scales", f"{stream} {codec}", MATH, **arguments))
    for number, codec in enumerate(keys):
        arguments = {"codec": codec, "head_dims": _head_dims(depth, number)}
        tasks.append(_task(target, "bias", codec, MATH, **arguments))
    for number, (key, value) in enumerate(pairs):
        pair = {"keys": key, "values": value}
        some = _head_dims(depth, number)
        # The growth is promised at every head dim; only a quick look takes fewer.
        every = some if depth == "quick" else list(HEAD_DIMS)
        label = f"{key}/{value}"
        tasks += [
            _task(target, "contract:measure_error", label, MATH, **pair, head_dims=some),
            _task(target, "contract:measure_growth", label, MATH, **pair, head_dims=every),
            _task(target, "codec_runs", label, ONE_LAYER, **pair, head_dim=(64, 80)[number % 2]),
        ]
    tasks.append(_task(target, "identity", "", ONE_LAYER))
    tasks += faults.tasks(NAME, target, depth)
    tasks += lifecycle.tasks(NAME, target, depth)
    for preset in request.presets:
        tasks += [
            _task(target, "figures", preset, ONE_LAYER, preset=preset),
            _task(
                target, "codec_runs", preset, ONE_LAYER,
                keys="", values="", head_dim=64, preset=preset,
            ),
        ]  # fmt: skip
    return tasks


def _supported(target: Target, stream: str, codecs: Sequence[str]) -> list[str]:
    """Codecs of a stream that the target executes; others are no evidence, none at all an error."""
    backend = kvassay.load(target.backend, target.variant)
    shape = {"kv_heads": 2, "query_heads": 8, "head_dim": 64}
    kept = [name for name in codecs if backend.supports(make_spec(**shape, **{stream: name}))]
    if not kept:
        raise KvassayError(f"{target.backend} {target.variant} supports no codec of {stream}")
    return kept


def _task(target: Target, function: str, label: str, stage: str, **arguments: Any) -> Task:
    module, _, name = function.partition(":")
    return Task(
        suite=NAME,
        label=f"{(name or module).removeprefix('measure_')} {label}".strip(),
        function=f"kvassay_suites.correctness.{module}:{name or 'measure'}",
        arguments={"backend": target.backend, "variant": target.variant, **arguments},
        target=target,
        preset=arguments.get("preset", ""),
        stage=stage,
        weight=0.1 + len(arguments.get("head_dims", ())) / 4,
    )


suite = CorrectnessSuite()
