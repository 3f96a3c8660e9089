"""What the tasks of one run share: results that each of them would compute alike.

The worker processes of a pool have one folder for them, which ends with the pool; elsewhere nothing
is shared and each task computes its own. A result is found by the text of all that it depends on,
its `key`; what stands in the folder under another key, or was torn or changed, is not taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

_folder: Path | None = None


def share_in(folder: Path | None) -> None:
    """Share results in a folder, which is made where it is missing; in none from now on for
    None."""
    global _folder
    _folder = folder
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)


def recall(key: str) -> Any | None:
    """The result that a task of this run kept under the key, None where there is none."""
    path = _path(key)
    if path is None:
        return None
    try:
        said, _, text = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return json.loads(text) if said == _digest(key, text) else None


def keep(key: str, result: Any) -> None:
    """Keep a result, plain data as JSON has it, for the other tasks of this run."""
    path = _path(key)
    if path is not None:
        text = json.dumps(result).encode()
        with contextlib.suppress(OSError):  # a full disk: the others compute it again
            path.write_bytes(_digest(key, text) + b"\n" + text)


def _path(key: str) -> Path | None:
    return _folder and _folder / hashlib.sha256(key.encode()).hexdigest()


def _digest(key: str, text: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + text).hexdigest().encode()
