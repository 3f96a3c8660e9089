"""Dumps on disk, read."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import PageError
from ..writing import path_text


def read_source(source: bytes | bytearray | memoryview | str | os.PathLike[str]) -> bytes:
    """Bytes as they are, or the content of a path; raises PageError, InputError."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    path = Path(path_text("restore", source))
    try:
        return path.read_bytes()
    except OSError as error:
        raise PageError(f"cannot read dump {os.fspath(source)!r}: {error.strerror}") from error
