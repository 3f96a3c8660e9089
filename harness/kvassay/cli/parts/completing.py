"""What the shell offers after TAB: names that exist. `kvassay --install-completion` sets it up.

Each completer imports what it needs itself, and none of it is slow. So it offers the variants that
packages list, whether they run here or not: that only the backends know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ... import plugins
from ...errors import KvassayError
from ...model_names import INSTALLABLE, TINY

Completer = Callable[[str], list[str]]


def _offering(names: Callable[[], Iterable[str]]) -> Completer:
    """A completer for these names, each offered once."""

    def complete(incomplete: str) -> list[str]:
        try:
            return [name for name in dict.fromkeys(names()) if name.startswith(incomplete)]
        except KvassayError:  # a shell's prompt is no place for it; the command itself will say
            return []

    return complete


def _variants() -> Iterable[str]:
    return (variant for _, found in plugins.loaded(plugins.VARIANTS) for variant in found)


def _codecs() -> Iterable[str]:
    return (name for _, found in plugins.loaded(plugins.CODECS) for name in found)


def _rules() -> Iterable[str]:
    from ...judging.rules import rulebook

    return (rule.name for rule in rulebook().rules)


def _presets() -> Iterable[str]:
    from ...presets import PRESETS

    return PRESETS


def _profiles() -> Iterable[str]:
    from ...profiles import shipped

    return shipped()


def _kinds() -> Iterable[str]:
    from ...skeletons.write import KINDS

    return KINDS


def _keys() -> Iterable[str]:
    from ...streams import codec_names

    return codec_names("keys")


def _values() -> Iterable[str]:
    from ...streams import codec_names

    return codec_names("values")


complete_backends = _offering(lambda: plugins.names(plugins.BACKENDS))
complete_variants = _offering(_variants)
complete_presets = _offering(_presets)
complete_profiles = _offering(_profiles)
complete_suites = _offering(lambda: plugins.names(plugins.SUITES))
complete_rules = _offering(_rules)
complete_kinds = _offering(_kinds)
complete_codecs = _offering(_codecs)
complete_key_codecs = _offering(_keys)
complete_value_codecs = _offering(_values)
complete_models = _offering(lambda: INSTALLABLE)
complete_captured_models = _offering(lambda: (*INSTALLABLE, *TINY))
