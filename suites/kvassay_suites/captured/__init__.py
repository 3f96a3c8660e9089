"""Captured: attention over somebody's own queries, keys and values, from the file given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvassay import registry
from kvassay.captured import CapturedFile, open_captured
from kvassay.errors import KvassayError
from kvassay.presets import preset as make_preset
from kvassay.suite import Depth, Request, Suite, Target, Task

from ..quality.measured import REAL

SUITE: Final = "captured"
#: Tokens and layers that are looked at; the last layers and the first matter as much as the middle.
EFFORTS: Final[dict[Depth, tuple[int, int]]] = {
    "quick": (320, 6),
    "default": (1024, 1000),
    "full": (16384, 1000),
}


class CapturedSuite(Suite):
    """One task a target and preset, over the layers of the file."""

    name = SUITE
    needs_tensors = True

    def tasks(self, request: Request) -> Sequence[Task]:
        """None where no file is given. Raises TensorsError for a bad file, KvassayError for a
        target that executes none of the presets in its shape."""
        if not request.tensors:
            return []
        file = open_captured(request.tensors)
        tokens, layers = EFFORTS[request.depth]
        tasks = [
            _task(target, preset, request.tensors, file, tokens, layers)
            for target in request.targets
            for preset in request.presets
            if _supports(target, preset, file)
        ]
        found = {task.target for task in tasks}
        for target in request.targets:
            if target not in found:
                raise KvassayError(
                    f"{target.backend} {target.variant} supports none of the presets "
                    f"{', '.join(request.presets)} in the shape of {file.path}"
                )
        return tasks


def shape(file: CapturedFile) -> dict[str, int]:
    """The fields of a spec that the file settles."""
    return {
        "layers": len(file.layers),
        "kv_heads": file.kv_heads,
        "query_heads": file.query_heads,
        "head_dim": file.head_dim,
    }


def _supports(target: Target, preset: str, file: CapturedFile) -> bool:
    """Whether it executes the preset; one that does not load fails in its own task."""
    try:
        backend = registry.load(target.backend, target.variant)
    except KvassayError:
        return True
    return bool(backend.supports(make_preset(preset, **shape(file))))


def _task(
    target: Target, preset: str, path: str, file: CapturedFile, tokens: int, layers: int
) -> Task:
    count = min(tokens, file.tokens) * min(layers, len(file.layers))
    return Task(
        suite=SUITE,
        label=f"captured tensors {preset}",
        function="kvassay_suites.captured.measure:measure",
        arguments={
            "backend": target.backend,
            "variant": target.variant,
            "preset": preset,
            "tensors": path,
            "digest": file.digest,
            "tokens": tokens,
            "layers": layers,
        },
        target=target,
        preset=preset,
        stage=REAL,
        weight=count / 3000,
    )


suite = CapturedSuite()
