"""What the shell offers after TAB: names that exist. `kvassay --install-completion` sets it up."""

from __future__ import annotations

from ...errors import KvassayError
from ...judging.rules import rulebook
from ...presets import PRESETS
from ...registry import backends
from ...suite import suites


def complete_backends(incomplete: str) -> list[str]:
    """Names of backends."""
    return _starting(incomplete, [*_known()])


def complete_variants(incomplete: str) -> list[str]:
    """Names of variants, of any backend."""
    return _starting(incomplete, [variant for found in _known().values() for variant in found])


def complete_presets(incomplete: str) -> list[str]:
    """Names of presets."""
    return _starting(incomplete, [*PRESETS])


def complete_suites(incomplete: str) -> list[str]:
    """Names of suites."""
    return _starting(incomplete, [suite.name for suite in suites().values()])


def complete_rules(incomplete: str) -> list[str]:
    """Names of rules."""
    return _starting(incomplete, [rule.name for rule in rulebook().rules])


def _known() -> dict[str, list[str]]:
    try:
        return {name: list(found) for name, found in backends().items()}
    except KvassayError:  # a shell's prompt is no place for it; the command itself will say
        return {}


def _starting(incomplete: str, names: list[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
