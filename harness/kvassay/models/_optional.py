"""Packages that only the real models need, imported when they are first used."""

from __future__ import annotations

import importlib
from types import ModuleType

from kvassay.errors import ModelError


def require(module: str) -> ModuleType:
    """Import ``module``; ModelError with the install line if it is absent."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as exc:
        raise ModelError(
            f"reading real models needs the package {exc.name!r}: run `pip install {exc.name}`"
        ) from exc
