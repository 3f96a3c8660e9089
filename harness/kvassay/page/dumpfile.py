"""Dumps on disk: written whole or not at all, read with the size known first."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import InputError, PageError, WriteError


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write to a temporary file beside `path`, flush it to disk, then rename over `path`.

    Raises WriteError; nothing but a whole file is ever seen at `path`.
    """
    write_parts_atomically("dump", path, [data])


def write_parts_atomically(
    what: str, path: str | os.PathLike[str], parts: Iterable[bytes | memoryview]
) -> None:
    """The same of a file given in parts; `what` is what errors call it."""
    target = _path(what, path)
    try:
        _replace(target, parts)
        _sync_directory(target.parent)
    except OSError as error:
        raise WriteError(
            f"cannot write {what} {os.fspath(path)!r}: {error.strerror or error}; give a file in a "
            f"folder that exists and may be written"
        ) from error


def _replace(target: Path, parts: Iterable[bytes | memoryview]) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            for part in parts:
                stream.write(part)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _sync_directory(folder: Path) -> None:
    """Make the rename itself durable, where directories can be synced."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_source(source: bytes | bytearray | memoryview | str | os.PathLike[str]) -> bytes:
    """Bytes as they are, or the content of a path; raises PageError, InputError."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    path = _path("restore", source)
    try:
        return path.read_bytes()
    except OSError as error:
        raise PageError(f"cannot read dump {os.fspath(source)!r}: {error.strerror}") from error


def _path(call: str, path: Any) -> Path:
    """The path, or InputError for what names none."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or "\0" in text:
        raise InputError(f"{call}: {path!r} is neither bytes nor the path of a file")
    return Path(text)
