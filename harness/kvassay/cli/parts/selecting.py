"""Which backends, variants and presets a command line means."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from ...errors import KvassayError, SpecError, UnavailableError, UnknownBackendError
from ...judging.required import check_required
from ...presets import PRESETS, preset
from ...protocol import Availability
from ...registry import REFERENCE, provider, providers, usual, variants_of
from ...suggest import did_you_mean
from ...suite import Suite, Target, suites

#: Any shape does to find out whether a preset exists.
_SOME_SHAPE: Final = {"layers": 1, "kv_heads": 1, "query_heads": 1, "head_dim": 64}


def choose_targets(
    backends: Sequence[str],
    variants: Sequence[str],
    best_only: bool = False,
    emulated: bool = False,
) -> tuple[Target, ...]:
    """Targets for names given by a user: by default every variant that runs here, of every backend
    that is not for requests only.

    `best_only` takes the best variant of each backend where none is named; those that run only
    under an emulator are left out unless named, or wanted by `emulated`. What was named must exist
    and run; it is never replaced. Raises UnknownBackendError or UnavailableError, also where a
    variant that the environment requires would not run.
    """
    look_here(backends)
    names = _unique(backends) or usual(providers())
    known = {name: variants_of(provider(name)) for name in names}
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


def look_here(backends: Iterable[str]) -> None:
    """Let `module:Class` be found in the folder one works in, where a backend is named so."""
    if any(":" in name for name in backends) and "" not in sys.path:
        sys.path.insert(0, "")


def without_reference(targets: Sequence[Target]) -> tuple[Target, ...]:
    """The targets but the reference, which others are compared with, unless there is no other."""
    others = tuple(target for target in targets if target.backend != REFERENCE)
    return others or tuple(targets)


def choose_presets(names: Sequence[str], known: Collection[str] = PRESETS) -> tuple[str, ...]:
    """Presets by name, all by default, also with fields changed; raises SpecError for one that is
    not known."""
    for name in names:
        if name not in known and known is not PRESETS:
            raise SpecError(f"no preset {name!r}{did_you_mean(name, known)}")
        if known is PRESETS:
            preset(name, **_SOME_SHAPE)
    return tuple(_unique(names) or known)


def product_presets() -> tuple[str, ...]:
    """The presets that are products."""
    return tuple(name for name, preset in PRESETS.items() if preset.role == "product")


def is_foreign(target: Target) -> bool:
    """Whether a target's code is somebody's own, to be asked in a worker only."""
    return provider(target.backend).foreign


def choose_suites(names: Sequence[str]) -> list[Suite]:
    """Installed suites by name, all by default; raises UnknownBackendError for an unknown one."""
    try:
        found = suites()
    except (ImportError, AttributeError) as error:
        raise KvassayError(f"a suite cannot be imported: {error}; reinstall its package") from error
    if not found:
        raise KvassayError("no suite is installed; reinstall kvassay with pip")
    # Several entry points may carry parts of one suite: they share its name.
    known = [suite.name for suite in found.values()]
    for name in names:
        if name not in known:
            raise UnknownBackendError(f"no suite {name!r}{did_you_mean(name, known)}")
    return [suite for suite in found.values() if not names or suite.name in names]


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _reasons(states: dict[str, Availability]) -> str:
    return "; ".join(
        f"{variant}: {state.status}" + (f", {state.reason}" if state.reason else "")
        for variant, state in states.items()
    )
