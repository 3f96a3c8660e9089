"""Which backend variants a user means: for the command line and for pytest."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from ..errors import UnavailableError, UnknownBackendError
from ..judging.required import check_required
from ..protocol import Availability
from ..registry import provider, providers, usual, variants_of
from ..suggest import did_you_mean
from ..suite import Target

Known = Mapping[str, Mapping[str, Availability]]


def known_variants(backends: Sequence[str]) -> Known:
    """Variants of the backends named, or of all that are not for requests only.

    A `module:Class` is looked for in the folder one works in, too.
    """
    look_here(backends)
    names = _unique(backends) or usual(providers())
    return {name: variants_of(provider(name)) for name in names}


def look_here(backends: Iterable[str]) -> None:
    """Let `module:Class` be found in the folder one works in, where a backend is named so."""
    if any(":" in name for name in backends) and "" not in sys.path:
        sys.path.insert(0, "")


def choose_targets(
    backends: Sequence[str],
    variants: Sequence[str],
    best_only: bool = False,
    emulated: bool = False,
    known: Known | None = None,
) -> tuple[Target, ...]:
    """Targets for names given by a user: by default every variant that runs here, of every backend
    that is not for requests only.

    `best_only` takes the best variant of each backend where none is named; those that run only
    under an emulator are left out unless named, or wanted by `emulated`. What was named must exist
    and run; it is never replaced. `known` is what `known_variants` said, where it was asked before.
    Raises UnknownBackendError or UnavailableError, also where a variant that the environment
    requires would not run.
    """
    known = known_variants(backends) if known is None else known
    if unknown := [v for v in variants if not any(v in found for found in known.values())]:
        options = {variant for found in known.values() for variant in found}
        raise UnknownBackendError(
            f"no variant {unknown[0]!r} among {', '.join(known)}{did_you_mean(unknown[0], options)}"
        )
    targets: list[Target] = []
    for name, found in known.items():
        wanted = {v: state for v, state in found.items() if not variants or v in variants}
        running = [
            Target(name, variant)
            for variant, state in wanted.items()
            if state.status == "ready" or (state.runs and (variants or emulated))
        ]
        missing = {variant: state for variant, state in wanted.items() if not state.runs}
        if missing and (variants or (backends and not running)):
            raise UnavailableError(f"backend {name!r} cannot run here: {_reasons(missing)}")
        targets += running[:1] if best_only and not variants else running
    if not targets:
        raise UnavailableError("no backend runs here; see: kvassay list")
    check_required(known, targets if emulated else None)
    return tuple(targets)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _reasons(states: dict[str, Availability]) -> str:
    return "; ".join(
        f"{variant}: {state.status}" + (f", {state.reason}" if state.reason else "")
        for variant, state in states.items()
    )
