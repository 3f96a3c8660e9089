"""The error of kvassay for each code that a library returns."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from kvassay.errors import (
    CacheMemoryError,
    IdentityError,
    InputError,
    KvassayError,
    NonFiniteError,
    PageError,
    SpanError,
    StateError,
    TruncateError,
    UnavailableError,
    UnsupportedError,
)
from kvassay.page.identity import check_text
from kvassay.spec import Spec

#: Where a dump keeps the size of its identity text, and the text (docs/page-format.md).
_TEXT_SIZE: Final = struct.Struct("<24xI")
_TEXT_AT: Final = 32


class Speaker(Protocol):
    """What returned an error: a loaded library, or an instance of a WebAssembly module."""

    @property
    def path(self) -> Path:
        """Its file."""

    @property
    def lib(self) -> Any:
        """The constants of the header as attributes."""

    def text(self, value: Any) -> str:
        """A message of a kv_error as text."""


_ERRORS: Final[dict[str, type[KvassayError]]] = {
    "KV_E_ARGUMENT": InputError,
    "KV_E_SPEC": UnsupportedError,
    "KV_E_VARIANT": UnavailableError,
    "KV_E_MEMORY": CacheMemoryError,
    "KV_E_PAGE": PageError,
    "KV_E_SPAN": SpanError,
    "KV_E_STATE": StateError,
}
_LENGTHS: Final = re.compile(r"nearest allowed lengths: (\d+(?:, \d+)*)")


def failure(library: Speaker, code: int, error: Any) -> KvassayError:
    """The exception of a kv_error that came with `code`."""
    lib = library.lib
    message = library.text(error.message) or f"{library.path.name} returned code {code}"
    if code == lib.KV_E_VALUE:
        return NonFiniteError(
            message,
            layer=error.layer,
            token=error.token,
            head=error.head,
            channel=error.channel,
        )
    if code == lib.KV_E_TRUNCATE:
        near = _LENGTHS.search(message)
        allowed = tuple(int(length) for length in near[1].split(", ")) if near else ()
        return TruncateError(message, allowed=allowed)
    if code == lib.KV_E_IDENTITY:
        return IdentityError(message, field=message.split(":", 1)[0])
    for name, kind in _ERRORS.items():
        if code == getattr(lib, name):
            return kind(message)
    return UnavailableError(
        f"{library.path}: code {code}, which {library.path.name} must not return"
    )


def check(library: Speaker, code: int, error: Any) -> None:
    """Raise unless `code` is KV_OK."""
    if code != library.lib.KV_OK:
        raise failure(library, code, error)


@contextmanager
def naming_the_field(spec: Spec, data: bytes) -> Iterator[None]:
    """Around what restores a dump: an IdentityError names the field that differs."""
    try:
        yield
    except IdentityError:
        refuse_identity(spec, data)
        raise


def refuse_identity(spec: Spec, data: bytes) -> None:
    """Name the first field in which a sound dump's identity text differs, if it does."""
    (size,) = _TEXT_SIZE.unpack_from(data)
    check_text(spec.identity_text, bytes(data[_TEXT_AT : _TEXT_AT + size]))
