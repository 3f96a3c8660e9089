"""The scorers that installed packages offer."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import UnavailableError, UnknownBackendError
from ..plugins import SCORERS, load, loaded
from ..protocol import Availability
from ..suggest import did_you_mean
from .protocol import Scorer, ScorerProvider


def scorers() -> dict[str, dict[str, Availability]]:
    """Every backend that has scorers, and its variants with their availability."""
    return {name: dict(provider.variants()) for name, provider in _providers()}


def _providers() -> Iterator[tuple[str, ScorerProvider]]:
    yield from loaded(SCORERS)


def load_scorer(name: str, variant: str | None = None) -> Scorer:
    """The scorer of a backend; variant None takes the best that runs, any other runs or raises.

    Raises UnknownBackendError for unknown names, UnavailableError where it cannot run here.
    """
    provider: ScorerProvider = load(SCORERS, name)
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
