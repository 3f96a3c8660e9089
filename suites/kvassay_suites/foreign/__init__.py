"""Foreign: backends with stored formats of their own, against their codec and full precision.

Runs by its name alone (`kvassay foreign --backend module:Class`); presets are the formats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kvassay import registry
from kvassay.backend.own_formats import OwnFormatBackend
from kvassay.errors import KvassayError
from kvassay.suite import Request, Suite, Target, Task

from ..common.specs import MATH, ONE_LAYER
from ..quality.measured import REAL, TINY

SUITE: Final = "foreign"
#: Stage and seconds by the function that measures.
_PARTS: Final = {
    "measure:arithmetic": (MATH, 4.0),
    "measure:one_layer": (ONE_LAYER, 2.0),
    "measure:tiny_transformers": (TINY, 4.0),
    "measure:model": (REAL, 60.0),
}
#: The same of what hands back what it holds: no codec is declared to hold its arithmetic to.
_RETURNED: Final = {
    "returned:placed": (MATH, 6.0),
    "returned:held": (MATH, 10.0),
    "returned:one_layer": (ONE_LAYER, 2.0),
    "measure:tiny_transformers": (TINY, 6.0),
    "measure:model": (REAL, 90.0),
}
_TOKENS: Final = {"quick": 320, "default": 1024, "full": 1024}


class ForeignSuite(Suite):
    """Four or five tasks a target and format."""

    name = SUITE
    judges = "formats"
    needs_model = True
    scope = SUITE  # no gate has it

    def tasks(self, request: Request) -> Sequence[Task]:
        """Raises KvassayError for a target without a format of its own, or without one named."""
        tasks: list[Task] = []
        for target in request.targets:
            known = own(target).formats
            for name in request.presets or tuple(known):
                if name not in known:
                    raise KvassayError(
                        f"{target.backend}: no format {name!r}; it has {', '.join(known)}"
                    )
                parts = _PARTS if known[name].keys else _RETURNED
                tasks += _tasks(target, name, parts, request)
        return tasks


def own(target: Target) -> OwnFormatBackend:
    """The backend of a target; KvassayError where it has no formats of its own."""
    backend = registry.load(target.backend, target.variant)
    if not isinstance(backend, OwnFormatBackend):
        raise KvassayError(
            f"{target.backend} has no formats of its own (kvassay.backend.own_formats); judge it "
            f"by kvassay gate"
        )
    return backend


def _tasks(
    target: Target, name: str, parts: Mapping[str, tuple[str, float]], request: Request
) -> list[Task]:
    more: dict[str, dict[str, Any]] = {
        "measure:model": {"model": request.model, "tokens": _TOKENS[request.depth]}
    }
    return [
        Task(
            suite=SUITE,
            label=f"{part.partition(':')[2].replace('_', ' ')} {name}",
            function=f"{__name__}.{part}",
            arguments={
                "backend": target.backend,
                "variant": target.variant,
                "name": name,
                **more.get(part, {}),
            },
            target=target,
            preset=name,
            stage=stage,
            weight=weight,
        )
        for part, (stage, weight) in parts.items()
    ]


suite = ForeignSuite()
