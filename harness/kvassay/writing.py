"""Files that a result is written to: whole or not at all, and refused before there is a result.

A new file gets the mode that the umask gives, one that is replaced keeps its own. A symlink is
followed. What is no regular file (`/dev/null`, `/dev/stdout`, a pipe) is written through.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from .errors import InputError, KvassayError, WriteError

_Path = str | os.PathLike[str]
#: Of the files that a write in progress keeps beside its target.
_SUFFIX: Final = ".kvassay-part"
#: File names of most systems end at 255 bytes, which leaves this for the name of the target.
_LONGEST_STEM: Final = 180
_BINARY: Final = getattr(os, "O_BINARY", 0)


def write_whole(what: str, path: _Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file in parts; `what` is what errors call it.

    Nothing but a whole file is ever seen at `path`. What writers that were killed left beside it is
    cleared. Raises InputError for what is no path and WriteError where it cannot be written.
    """
    named = path_text(what, path)
    with _said(what, named):
        if is_stream(named):
            with open_stream(named) as stream:
                stream.writelines(parts)
        else:
            _replace(_target(named), parts)


def write_text(what: str, path: _Path, text: str) -> None:
    """`write_whole` of text in UTF-8."""
    write_whole(what, path, [text.encode()])


def is_stream(path: _Path) -> bool:
    """Whether what stands at a path is to be written through instead of being replaced: it is no
    regular file, or the link to one that a process has open (`/dev/stdout`)."""
    try:
        found = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(found) or stat.S_ISDIR(found)) or _of_a_process(os.fspath(path))


def open_stream(path: _Path) -> BinaryIO:
    """Open what `is_stream` finds, to be written behind what it holds. Raises OSError."""
    return open(path, "ab")


def check_outputs(
    outputs: Mapping[str, _Path | None], inputs: Mapping[str, _Path | None] | None = None
) -> None:
    """Refuse outputs, by the option that names each, before anything is measured for them.

    Raises WriteError for one that cannot be written, KvassayError for one that would destroy an
    input or another output. None is an option that was not given. Changes nothing.
    """
    seen = {option: path for option, path in (inputs or {}).items() if path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        for other, its in seen.items():
            if _is_same(path, its):
                raise KvassayError(
                    f"{option} {os.fspath(path)!r} would be written over {other}: name another file"
                )
        _check_writable(option, path_text(option, path))
        seen[option] = path


def _check_writable(option: str, path: str) -> None:
    with _said(option, path):
        if is_stream(path):
            _check_access(path)
            return
        with _begun(_target(path)):
            pass


def _is_same(a: _Path, b: _Path) -> bool:
    if is_stream(a):
        return False
    with suppress(OSError):
        return os.path.samefile(a, b)
    return os.path.realpath(a) == os.path.realpath(b)


@contextmanager
def _said(what: str, path: str) -> Iterator[None]:
    """Around a write: what the system refuses becomes a WriteError that names the file."""
    try:
        yield
    except KvassayError:
        raise
    except OSError as error:
        raise WriteError(
            f"cannot write {what} {path!r}: {error.strerror or error}; give a file in a folder "
            f"that exists and may be written"
        ) from error


def path_text(what: str, path: Any) -> str:
    """The path as text, or InputError for what names none."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or "\0" in text:
        raise InputError(f"{what}: {path!r} is not the path of a file")
    return text


def _of_a_process(path: str) -> bool:
    """Whether a path leads through the files that a process has open, whose links are no names."""
    for _ in range(40):  # as many links as Linux follows
        folder, name = os.path.split(os.path.abspath(path))
        folder = os.path.realpath(folder)
        if folder.startswith("/proc/"):
            return True
        path = os.path.join(folder, name)
        if not os.path.islink(path):
            return False
        path = os.path.join(folder, os.readlink(path))
    return False


def _target(path: str) -> Path:
    """The regular file that is to be replaced or made, behind all symlinks. Raises OSError."""
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)  # a loop of symlinks ends here
    except FileNotFoundError:
        is_folder = not os.path.basename(path)
    else:
        _check_access(path)
    if is_folder:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return Path(os.path.realpath(path))


def _check_access(path: str) -> None:
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _replace(target: Path, parts: Iterable[bytes | memoryview]) -> None:
    _clear(target)
    with _begun(target) as (path, stream):
        stream.writelines(parts)
        stream.flush()
        _keep_mode(stream.fileno(), target)
        os.fsync(stream.fileno())
        if os.name != "posix":
            stream.close()  # Windows renames no open file
        os.replace(path, target)
    _sync_directory(target.parent)


@contextmanager
def _begun(target: Path) -> Iterator[tuple[str, BinaryIO]]:
    """A new file beside the target, locked while its writer lives, gone when it is left."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY
    while True:
        path = str(target.with_name(f"{_stem(target)}{secrets.token_hex(6)}{_SUFFIX}"))
        handle = os.open(path, flags, 0o666)
        _lock(handle, wait=True)
        if os.path.lexists(path):  # else somebody who clears took it for a leftover
            break
        os.close(handle)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield path, stream
    finally:
        Path(path).unlink(missing_ok=True)


def _stem(target: Path) -> str:
    short = len(os.fsencode(target.name)) <= _LONGEST_STEM
    return f".{target.name if short else target.name[: _LONGEST_STEM // 4]}."


def _clear(target: Path) -> None:
    """Remove what writers of the target left that are no more: nobody holds its lock."""
    leftover = re.compile(re.escape(_stem(target)) + "[0-9a-f]{12}" + re.escape(_SUFFIX))
    with os.scandir(target.parent) as entries:
        found = [entry.path for entry in entries if leftover.fullmatch(entry.name)]
    for path in found:
        with suppress(OSError):  # another's, or gone meanwhile
            if os.name != "posix":
                os.unlink(path)  # Windows removes no open file
                continue
            handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | _BINARY)
            try:
                if _lock(handle, wait=False):
                    os.unlink(path)
            finally:
                os.close(handle)


def _lock(handle: int, wait: bool) -> bool:
    """Lock a file until it is closed; whether that was possible."""
    if os.name != "posix":
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # held by a writer, or a file system without locks, where all are left alone
        return False
    return True


def _keep_mode(handle: int, target: Path) -> None:
    """Give a new file the owner and the mode of the one that it replaces."""
    if os.name != "posix" or not target.exists():
        return
    old = target.stat()
    with suppress(PermissionError):  # who may write a file need not be its owner
        os.fchown(handle, old.st_uid, old.st_gid)
    os.fchmod(handle, stat.S_IMODE(old.st_mode) & 0o777)


def _sync_directory(folder: Path) -> None:
    """Make the rename itself durable, where directories can be synced."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
