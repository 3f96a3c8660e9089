"""Files that packages bring along, found through entry points and written into a folder.

Sites are put together to one page (`kvassay serve`); a pack stands alone (`kvassay golden-pack`).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from ..errors import RegistryError, UnavailableError, WriteError
from ..plugins import PACKS, SITES, load, loaded

#: Path without a leading slash, for instance "golden/index.json": the file, or its content.
Files = Mapping[str, Path | bytes]


def site() -> dict[str, Path | bytes]:
    """The files of all sites together.

    Raises RegistryError where two of them give the same path, UnavailableError where there is no
    page at all.
    """
    found: dict[str, Path | bytes] = {}
    for name, make in loaded(SITES):
        files: Files = make()
        if both := found.keys() & files.keys():
            raise RegistryError(f"site {name!r}: {min(both)!r} is given by another site too")
        found.update(files)
    if "index.html" not in found:
        raise UnavailableError("no installed package brings a page; install kvassay's backends")
    return found


def pack(name: str) -> Mapping[str, bytes]:
    """The files of a pack; UnknownBackendError where no package offers it."""
    files: Mapping[str, bytes] = load(PACKS, name)()
    return files


def write_files(files: Files, folder: Path) -> int:
    """Write files below a folder, which is made; returns their number.

    Raises WriteError for a folder that holds something already, or cannot be written.
    """
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise WriteError(f"{folder}: exists and is not an empty folder; name another")
        for name, content in files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                target.write_bytes(content)
            else:
                shutil.copyfile(content, target)
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return len(files)


def differences(files: Mapping[str, bytes], folder: Path) -> list[str]:
    """What differs between files and a folder, a line each; [] if nothing does."""
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
