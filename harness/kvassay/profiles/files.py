"""Profiles as files: those that come with the package, by name, and one's own, by path."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from ..errors import SpecError
from ..json_text import read_json
from ..suggest import did_you_mean
from ..writing import write_text
from .profile import Profile

_SHIPPED: Final = Path(__file__).parent / "shipped"
#: No profile of a thousand layers is longer.
_LARGEST: Final = 1 << 20


def shipped() -> tuple[str, ...]:
    """Names of the profiles that come with the package, as `smollm2-135m/3`."""
    paths = sorted(_SHIPPED.glob("*/*.json"))
    return tuple(f"{path.parent.name}/{path.stem}" for path in paths)


def find(name_or_path: str | os.PathLike[str]) -> Profile:
    """A shipped profile by name, or one's own by the path of its file.

    Raises SpecError for a name that does not exist, and for a file that is no profile.
    """
    name = os.fspath(name_or_path)
    if name in shipped():
        return read_profile(_SHIPPED / f"{name}.json")
    path = Path(name_or_path)
    if not path.is_file():
        hint = did_you_mean(name, shipped())
        raise SpecError(f"profile {name!r} is neither a file nor one of kvassay's own{hint}")
    return read_profile(path)


def read_profile(path: Path) -> Profile:
    """The profile in a file, every field checked; SpecError says what is wrong, and where."""
    with path.open("rb") as stream:
        text = stream.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise SpecError(f"{path}: longer than {_LARGEST} bytes, so no profile")
    try:
        return Profile.from_dict(read_json(text))
    except ValueError as error:
        raise SpecError(f"{path}: {error}") from None


def write_profile(path: Path, profile: Profile) -> None:
    """Write a profile whole or not at all; raises WriteError."""
    write_text("profile", path, json.dumps(profile.to_dict(), indent=1) + "\n")
