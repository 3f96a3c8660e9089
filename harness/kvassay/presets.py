"""Named specs, and the role each plays in a verdict."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from .errors import SpecError
from .spec import Spec
from .suggest import did_you_mean


@dataclass(frozen=True)
class Preset:
    """A named set of spec fields. `role`: product, experiment, baseline or control."""

    name: str
    role: str
    fields: MappingProxyType[str, Any]

    @property
    def judged(self) -> bool:
        """Whether a reject of this preset sets the exit status."""
        return self.role in ("product", "experiment")

    @property
    def scaled(self) -> bool:
        """Whether a stream keeps a scale for each vector."""
        return any(str(self.fields[stream]).startswith("turbo") for stream in ("keys", "values"))


_TURBO: Final = {
    "keys": "turbo:3.5",
    "values": "turbo:3",
    "window": 128,
    "sinks": 4,
    "key_centre": "page",
}

PRESETS: Final = MappingProxyType(
    {
        name: Preset(name, role, MappingProxyType(fields))
        for name, role, fields in (
            ("fp16", "baseline", {"keys": "fp16", "values": "fp16"}),
            ("turbo", "product", _TURBO),
            ("turbo-qjl", "experiment", {**_TURBO, "keys": "turbo:3+qjl"}),
            ("kivi", "control", {"keys": "kivi:2", "values": "kivi:2", "window": 32}),
        )
    }
)

#: What the name of a profile begins with where presets are named: `profile:smollm2-135m/3`.
PROFILE: Final = "profile:"

#: Fields of a spec that a model decides.
_SHAPE: Final = ("layers", "kv_heads", "query_heads", "head_dim")

#: Ways to store vectors (docs/retrieval.md), judged like presets: codes alone, codes with an exact
#: re-rank of the best, and the fallback of a byte a component.
STORED_MODES: Final = (
    *("stored-4", "stored-3", "stored-2"),
    *("stored-4-rerank", "stored-3-rerank", "stored-2-rerank", "stored-sq8"),
)


def preset(name: str, **shape: Any) -> Spec:
    """The Spec of a preset with the given shape; any spec field in `shape` overrides the preset's.

    A name may change fields itself, `turbo,keys=turbo:4,window=32`: an arm of an experiment,
    judged like one. `profile:NAME` is a profile, judged like a preset; a shape with the identity of
    another model is refused. Raises SpecError for an unknown preset or field.
    """
    if name.startswith(PROFILE):
        from .profiles import find  # which imports this module

        return find(name.removeprefix(PROFILE)).on(**shape)
    base, *changes = name.split(",")
    if base not in PRESETS:
        raise SpecError(f"no preset {base!r}{did_you_mean(base, PRESETS)}")
    return Spec.from_dict({**PRESETS[base].fields, **_changes(name, changes), **shape})


def profile(name_or_path: str | os.PathLike[str], **fields: Any) -> Spec:
    """The Spec of a profile: a shipped one by name, `smollm2-135m/3`, or a file of `kvassay fit`.

    The shape and `identity.model` are those of its model; fields of a spec in `fields` come on
    top. Raises SpecError for what is no profile, IdentityError for another model's shape.
    """
    from .profiles import find  # which imports this module

    return find(name_or_path).spec(**fields)


def combined(fields: Mapping[str, Any], shape: Mapping[str, Any]) -> Spec:
    """The Spec of fields in a model's shape; a layer that both override has what both say there,
    the shape's where they differ. Raises SpecError."""
    try:
        sides = [
            {int(layer): dict(one) for layer, one in side.get("layer_overrides", {}).items()}
            for side in (fields, shape)
        ]
    except (AttributeError, TypeError, ValueError):
        raise SpecError("layer_overrides: not a mapping from layer numbers") from None
    mine, models = sides
    overrides = {n: {**mine.get(n, {}), **models.get(n, {})} for n in {*mine, *models}}
    return Spec.from_dict({**fields, **shape, "layer_overrides": overrides})


def stores_pages(name: str) -> bool:
    """Whether a name of a run means caches of this project's pages: a preset, also with fields
    changed, or a profile. Ways to store vectors and formats of a backend's own are others."""
    return name.startswith(PROFILE) or name.partition(",")[0] in PRESETS


def _changes(name: str, changes: Sequence[str]) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    for change in changes:
        field, given, value = change.partition("=")
        if not given or not value or field in found:
            raise SpecError(f"preset {name!r}: {change!r} must be field=value, each field once")
        if field in _SHAPE:
            raise SpecError(f"preset {name!r}: {field} belongs to the model, not to a preset")
        found[field] = int(value) if value.isdecimal() else value
    return found
