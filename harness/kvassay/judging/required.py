"""Variants that must run: an environment variable turns "not run" into a failure, for CI."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Final

from ..errors import UnavailableError, UnknownBackendError
from ..protocol import Availability
from ..suggest import did_you_mean
from ..suite import Target

#: Names separated by commas, for instance `avx2,neon,neondot`.
REQUIRED: Final = "KVASSAY_REQUIRE_VARIANTS"


def required_variants() -> tuple[str, ...]:
    """The names in the environment variable."""
    names = os.environ.get(REQUIRED, "").split(",")
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def check_required(
    known: Mapping[str, Mapping[str, Availability]], targets: Iterable[Target] | None = None
) -> None:
    """Refuse to go on where a required variant cannot run, or is not among `targets` if given.

    `known` is the availability of every variant by backend. Raises UnavailableError, or
    UnknownBackendError for a name that no backend has.
    """
    chosen = None if targets is None else {target.variant for target in targets}
    for name in required_variants():
        states = [(backend, found[name]) for backend, found in known.items() if name in found]
        if not states:
            options = {variant for found in known.values() for variant in found}
            raise UnknownBackendError(
                f"{REQUIRED}: no variant {name!r} among {', '.join(known)}"
                f"{did_you_mean(name, options)}"
            )
        if not any(state.runs for _, state in states):
            reasons = "; ".join(f"{b}: {s.status}, {s.reason}" for b, s in states)
            raise UnavailableError(f"{REQUIRED}: variant {name} is not run ({reasons})")
        if chosen is not None and name not in chosen:
            raise UnavailableError(
                f"{REQUIRED}: variant {name} is not run: it was not asked for; "
                "name it with --variant or take it out of the variable"
            )
