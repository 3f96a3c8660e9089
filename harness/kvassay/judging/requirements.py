"""What a rule may require before it binds: one row a requirement, for rules, docs and `explain`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..presets import PRESETS, STORED_MODES, stores_pages


@dataclass(frozen=True)
class Case:
    """Who is judged on what: a preset, and what its backend declares of itself.

    `evidence` is what the backend says of its files, `build_id` what was built ("" for plain
    Python, None where it is not recorded); `baseline` and `tensors` whether the run was held to
    earlier records and had captured tensors.
    """

    preset: str
    exact: bool = True
    build_id: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    baseline: bool = False
    tensors: bool = False


@dataclass(frozen=True)
class Requirement:
    """When a rule with this requirement binds, in words and as a test."""

    says: str
    holds: Callable[[Case], bool]


def _scaled(case: Case) -> bool:
    return case.preset not in PRESETS or PRESETS[case.preset].scaled


REQUIREMENTS: Final[Mapping[str, Requirement]] = {
    "exact": Requirement("backends that promise bits", lambda case: case.exact),
    "bounded": Requirement("backends that declare a bound", lambda case: not case.exact),
    "quantized": Requirement("all presets but fp16", lambda case: case.preset != "fp16"),
    "scaled": Requirement("presets with a scale for each vector", _scaled),
    "stored": Requirement("ways to store vectors", lambda case: case.preset in STORED_MODES),
    "wasm": Requirement(
        "caches in a linear memory", lambda case: bool(case.evidence.get("linear_memory"))
    ),
    "native": Requirement(
        "caches in no linear memory", lambda case: not case.evidence.get("linear_memory")
    ),
    "shipped": Requirement(
        "files that this project ships", lambda case: bool(case.evidence.get("shipped"))
    ),
    "built": Requirement("backends that are no plain Python", lambda case: case.build_id != ""),
    "baseline": Requirement("runs held to a baseline", lambda case: case.baseline),
    "tensors": Requirement("runs on captured tensors", lambda case: case.tensors),
    "foreign": Requirement(
        "formats of a backend's own",
        lambda case: not stores_pages(case.preset) and case.preset not in STORED_MODES,
    ),
    "declared": Requirement(
        "whose codec is declared", lambda case: not case.evidence.get("returns")
    ),
    "returned": Requirement(
        "classes that hand back what they hold", lambda case: bool(case.evidence.get("returns"))
    ),
}


def binds(requires: tuple[str, ...], case: Case) -> bool:
    """Whether all requirements of a rule hold."""
    return all(REQUIREMENTS[name].holds(case) for name in requires)


def in_words(requires: tuple[str, ...]) -> str:
    """Requirements for a reader, "" for none."""
    return "; ".join(REQUIREMENTS[name].says for name in requires)
