"""Which formats `kvassay foreign` judges."""

from __future__ import annotations

from collections.abc import Sequence

from ...backend.own_formats import OwnFormatBackend
from ...errors import KvassayError
from ...registry import load
from ...suggest import did_you_mean
from ...suite import Target


def choose_formats(targets: Sequence[Target], names: Sequence[str]) -> tuple[str, ...]:
    """Formats by name, all that the targets have by default; KvassayError for one that one of them
    lacks, and for a backend without formats of its own."""
    found: list[str] = []
    for target in targets:
        backend = load(target.backend, target.variant)
        if not isinstance(backend, OwnFormatBackend):
            raise KvassayError(
                f"{target.backend} has no formats of its own: judge it by kvassay gate, and name "
                f"one that has by --backend module:Class"
            )
        for name in names:
            if name not in backend.formats:
                hint = did_you_mean(name, backend.formats)
                raise KvassayError(f"{target.backend} has no format {name!r}{hint}")
        found += names or backend.formats
    return tuple(dict.fromkeys(found))
