"""Named specs, and the role each plays in a verdict."""

from __future__ import annotations

from collections.abc import Sequence
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
    judged like one. Raises SpecError for an unknown preset or field.
    """
    base, *changes = name.split(",")
    if base not in PRESETS:
        raise SpecError(f"no preset {base!r}{did_you_mean(base, PRESETS)}")
    return Spec.from_dict({**PRESETS[base].fields, **_changes(name, changes), **shape})


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
