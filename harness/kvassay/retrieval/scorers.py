"""Finds scorers through the entry point group `kvassay.scorers`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Final

from ..errors import RegistryError, UnavailableError, UnknownBackendError
from ..protocol import Availability
from ..suggest import did_you_mean
from .protocol import Scorer, ScorerProvider

SCORER_GROUP: Final = "kvassay.scorers"


def scorers() -> dict[str, dict[str, Availability]]:
    """Every backend that has scorers, and its variants with their availability."""
    return {name: dict(_provider(point).variants()) for name, point in _points().items()}


def _points() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=SCORER_GROUP):
        if point.name in found:
            raise RegistryError(f"two packages offer a scorer named {point.name!r}; uninstall one")
        found[point.name] = point
    return dict(sorted(found.items()))


def _provider(point: EntryPoint) -> ScorerProvider:
    provider: ScorerProvider = point.load()
    return provider


def load_scorer(name: str, variant: str | None = None) -> Scorer:
    """The scorer of a backend; variant None takes the best that runs, any other runs or raises.

    Raises UnknownBackendError for unknown names, UnavailableError where it cannot run here.
    """
    known = _points()
    if name not in known:
        raise UnknownBackendError(f"no scorer {name!r}{did_you_mean(name, known)}")
    provider = _provider(known[name])
    states = provider.variants()
    if variant is None:
        variant = next((key for key, state in states.items() if state.runs), None)
        if variant is None:
            reasons = "; ".join(f"{key}: {state.reason}" for key, state in states.items())
            raise UnavailableError(f"scorer {name!r} has no variant that runs here ({reasons})")
    if variant not in states:
        raise UnknownBackendError(
            f"scorer {name!r} has no variant {variant!r}{did_you_mean(variant, states)}"
        )
    if not states[variant].runs:
        raise UnavailableError(
            f"scorer {name!r}, variant {variant!r}: {states[variant].status}: "
            f"{states[variant].reason}"
        )
    scorer: Scorer = provider.load(variant)
    return scorer
