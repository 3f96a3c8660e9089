"""Packs of plain files that packages offer, found through entry points; the harness makes none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from ..errors import KvassayError, WriteError

#: Functions that give a pack: path inside it to content.
PACK_GROUP: Final = "kvassay.packs"


def pack(name: str) -> Mapping[str, bytes]:
    """The files of the pack of that name; KvassayError where no package offers it."""
    for point in entry_points(group=PACK_GROUP):
        if point.name == name:
            make: Callable[[], Mapping[str, bytes]] = point.load()
            return make()
    raise KvassayError(f"no installed package offers the pack {name!r}; reinstall kvassay with pip")


def write_pack(files: Mapping[str, bytes], folder: Path) -> None:
    """Write a pack into a new or empty folder; WriteError for one that holds something."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise WriteError(f"{folder}: exists and is not empty; name a new folder")
        for path, content in files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    except OSError as error:
        if isinstance(error, WriteError):
            raise
        raise WriteError(f"{folder}: cannot be written: {error.strerror or error}") from error


def compare_pack(files: Mapping[str, bytes], folder: Path) -> list[str]:
    """What differs between a pack and a folder, a line each; [] if nothing does."""
    wrong = []
    for path, content in files.items():
        place = folder / path
        if not place.is_file():
            wrong.append(f"{path} is missing")
        elif place.stat().st_size != len(content):
            wrong.append(f"{path} has {place.stat().st_size} bytes, {len(content)} belong there")
        elif place.read_bytes() != content:
            wrong.append(f"{path} differs")
    if folder.is_dir():
        found = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        wrong += [f"{path} does not belong there" for path in sorted(set(found) - set(files))]
    return wrong
