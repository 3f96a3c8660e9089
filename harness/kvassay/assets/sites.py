"""Static pages that packages bring along: found through entry points, put together, written out."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from ..errors import InputError, RegistryError, UnavailableError

SITE_GROUP: Final = "kvassay.sites"

#: URL path without a leading slash, for instance "golden/index.json": the file, or its content.
Files = Mapping[str, Path | bytes]


def collect() -> dict[str, Path | bytes]:
    """All files of all entry points in `kvassay.sites`, each a function without arguments that
    returns `Files`.

    Raises RegistryError where two of them give the same path, UnavailableError where there is no
    page at all.
    """
    found: dict[str, Path | bytes] = {}
    for point in sorted(entry_points(group=SITE_GROUP), key=lambda point: point.name):
        try:
            files: Files = point.load()()
        except ImportError as error:
            raise RegistryError(f"site {point.name!r} cannot be imported: {error}") from error
        if both := found.keys() & files.keys():
            raise RegistryError(f"site {point.name!r}: {min(both)!r} is given by another site too")
        found.update(files)
    if "index.html" not in found:
        raise UnavailableError("no installed package brings a page; install kvassay's backends")
    return found


def export(files: Files, folder: Path) -> int:
    """Write the files below `folder`, which is made; returns their number.

    Raises InputError if the folder holds something already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists and is not an empty folder; name another")
    for name, content in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            shutil.copyfile(content, target)
    return len(files)
