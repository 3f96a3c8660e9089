"""What installed packages offer: one look-up for every group of entry points.

| group | what an entry point names |
|---|---|
| `kvassay.backends` | a `BackendProvider` or `Backend` class |
| `kvassay.loaders` | a function from a path to a provider, by the scheme before the colon |
| `kvassay.suites` | a `Suite` |
| `kvassay.codecs` | a mapping of names to codec classes |
| `kvassay.scorers` | a `ScorerProvider` |
| `kvassay.web` | the `WebAssets` of a backend |
| `kvassay.sites`, `kvassay.packs` | a function that returns files |
| `kvassay.variants` | names of variants, for a shell that completes them |
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from .errors import RegistryError, UnknownBackendError
from .suggest import did_you_mean

BACKENDS: Final = "kvassay.backends"
LOADERS: Final = "kvassay.loaders"
SUITES: Final = "kvassay.suites"
CODECS: Final = "kvassay.codecs"
SCORERS: Final = "kvassay.scorers"
WEB: Final = "kvassay.web"
SITES: Final = "kvassay.sites"
PACKS: Final = "kvassay.packs"
VARIANTS: Final = "kvassay.variants"

#: What a group's entry points are called in an error.
_CALLED: Final = {
    BACKENDS: "backend",
    LOADERS: "loader",
    SUITES: "suite",
    CODECS: "set of codecs",
    SCORERS: "scorer",
    WEB: "set of web assets",
    SITES: "site",
    PACKS: "pack",
    VARIANTS: "list of variants",
}


@cache
def points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group by name; read once, since it opens a file of every package."""
    return tuple(sorted(entry_points(group=group), key=lambda point: point.name))


def names(group: str) -> tuple[str, ...]:
    """Names in a group, each once; nothing is imported."""
    return tuple(dict.fromkeys(point.name for point in points(group)))


def load(group: str, name: str) -> Any:
    """What the entry point `name` of a group names.

    Raises UnknownBackendError where no package offers it, RegistryError where two do or it cannot
    be imported.
    """
    found = [point for point in points(group) if point.name == name]
    if not found:
        hint = did_you_mean(name, names(group)) or "; reinstall the package that brings it"
        raise UnknownBackendError(f"no {_CALLED[group]} {name!r}{hint}")
    if len(found) > 1:
        owners = ", ".join(sorted(p.dist.name if p.dist else p.value for p in found))
        raise RegistryError(
            f"two packages offer a {_CALLED[group]} named {name!r} ({owners}); uninstall one"
        )
    try:
        return found[0].load()
    except Exception as error:  # somebody's own module may raise anything
        raise RegistryError(
            f"{_CALLED[group]} {name!r}: importing {found[0].value} raised "
            f"{type(error).__name__}: {error}; reinstall its package"
        ) from error


def loaded(group: str) -> Iterator[tuple[str, Any]]:
    """All names of a group with what they name; raises what `load` raises."""
    for name in names(group):
        yield name, load(group, name)


def first_sentence(group: str, name: str) -> str:
    """The first sentence of the docstring of the module that an entry point names, which is not
    imported; "" where it cannot be found or has none."""
    for point in points(group):
        if point.name == name:
            spec = find_spec(point.module)
            if spec is not None and spec.origin is not None:
                tree = ast.parse(Path(spec.origin).read_bytes())
                return " ".join((ast.get_docstring(tree) or "").split()).partition(". ")[0]
    return ""
