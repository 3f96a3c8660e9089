"""Which presets and suites a command line means."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from ...errors import KvassayError, SpecError, UnknownBackendError
from ...presets import PRESETS, PROFILE, preset
from ...registry import REFERENCE, provider
from ...suggest import did_you_mean
from ...suite import Suite, Target, suites

#: Any shape does to find out whether a preset exists.
_SOME_SHAPE: Final = {"layers": 1, "kv_heads": 1, "query_heads": 1, "head_dim": 64}


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
    return tuple(dict.fromkeys(names) or known)


def choose_profiles(names: Sequence[str], model: str) -> tuple[str, ...]:
    """Profiles as names of presets; raises IdentityError for one of another model than the run's,
    by name or path."""
    if not names:
        return ()
    from ...models import GGUFFile, locate
    from ...profiles import find

    digest = GGUFFile(locate(model)).sha256
    for name in names:
        find(name).check_model(model, digest)
    return tuple(f"{PROFILE}{name}" for name in names)


def product_presets() -> tuple[str, ...]:
    """The presets that are products."""
    return tuple(name for name, preset in PRESETS.items() if preset.role == "product")


def is_foreign(target: Target) -> bool:
    """Whether a target's code is somebody's own, to be asked in a worker only."""
    return provider(target.backend).foreign


def choose_suites(names: Sequence[str]) -> list[Suite]:
    """Installed suites by name, all by default; raises UnknownBackendError for an unknown one."""
    found = suites()
    if not found:
        raise KvassayError("no suite is installed; reinstall kvassay with pip")
    for name in names:
        if name not in found:
            raise UnknownBackendError(f"no suite {name!r}{did_you_mean(name, found)}")
    return [found[name] for name in dict.fromkeys(names) or found]
