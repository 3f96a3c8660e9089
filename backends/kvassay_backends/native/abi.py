"""A shared library that exports the functions of kvassay.h, loaded through cffi in ABI mode.

The header itself is what cffi reads: the text between its BEGIN and END marks.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import cffi

from kvassay.errors import UnavailableError

from .build_info import (
    HEADER_NAME,
    LIBRARY_DIR,
    RETRIEVAL_HEADER_NAME,
    SHARE_HEADER_NAME,
    SOURCE_DIR,
)

_BEGIN: Final = "/* BEGIN declarations */"
_END: Final = "/* END declarations */"

#: Field of kv_info, constant of the header it must equal.
_VERSIONS: Final = (
    ("abi_version", "KV_ABI_VERSION"),
    ("contract_version", "KV_CONTRACT_VERSION"),
    ("page_version", "KV_PAGE_VERSION"),
    ("dump_version", "KV_DUMP_VERSION"),
)

_never_unloaded: Final[list[Any]] = []


def header_path(name: str = HEADER_NAME) -> Path:
    """A header: beside the built library, or in the sources of a checkout that has not built it.

    Raises UnavailableError if neither exists.
    """
    candidates = (LIBRARY_DIR / name, SOURCE_DIR / "include" / name)
    for path in candidates:
        if path.is_file():
            return path
    raise UnavailableError(f"no {name} in {' or '.join(str(p.parent) for p in candidates)}")


def declarations(header: str) -> str:
    """The part of the header between its marks; raises UnavailableError without them."""
    _, begin, rest = header.partition(_BEGIN)
    text, end, _ = rest.partition(_END)
    if not begin or not end:
        raise UnavailableError(f"header: no text between {_BEGIN!r} and {_END!r}")
    return text


@cache
def interface() -> Any:
    """The cffi interface made from kvassay.h."""
    ffi = cffi.FFI()
    ffi.cdef(declarations(header_path().read_text(encoding="utf-8")))
    return ffi


@cache
def sharing_interface() -> Any:
    """What kvassay_share.h adds to it."""
    return _addition(SHARE_HEADER_NAME)


@cache
def retrieval_interface() -> Any:
    """What kvassay_retrieval.h adds to it."""
    return _addition(RETRIEVAL_HEADER_NAME)


def _addition(header: str) -> Any:
    ffi = cffi.FFI()
    ffi.include(interface())
    ffi.cdef(declarations(header_path(header).read_text(encoding="utf-8")))
    return ffi


class Library:
    """An open library whose versions and functions were checked.

    `lib` holds the functions and constants of the header. Raises UnavailableError if the file
    cannot be loaded, lacks a function, or speaks another version; the message has both numbers.
    It stays loaded until the process ends: a cache or a thread of it may outlive this object.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ffi = interface()
        try:
            self.lib: Any = self.ffi.dlopen(str(path))
        except OSError as error:
            raise UnavailableError(f"cannot load {path}: {error}") from None
        _never_unloaded.append(self.lib)
        self._check_functions(self.lib)
        info = self.lib.kv_get_info()
        for field, constant in _VERSIONS:
            found, expected = getattr(info, field), getattr(self.lib, constant)
            if found != expected:
                raise UnavailableError(
                    f"{path}: {field} is {found}, this kvassay needs {expected}; build the library "
                    f"against its {HEADER_NAME}"
                )
        if not info.flags & self.lib.KV_FLAG_CACHE:
            raise UnavailableError(
                f"{path}: offers only the pure kernels; kvassay drives the kv_cache functions"
            )
        #: The functions of kvassay_share.h, None where the library does not say it has them.
        self.sharing: Any = self._open_sharing(info.flags)
        self.exact = bool(info.flags & self.lib.KV_FLAG_EXACT)
        self.build_id = self.text(info.build_id)
        names = (self.lib.kv_variant_name(index) for index in range(info.variant_count))
        #: Names by number. The library lists them from the most portable to the fastest.
        self.variants: tuple[str, ...] = tuple(self.text(name) for name in names)

    def _open_sharing(self, flags: int) -> Any:
        sharing = sharing_interface().dlopen(str(self.path))
        if not flags & sharing.KV_FLAG_SHARE:
            return None
        _never_unloaded.append(sharing)
        self._check_functions(sharing)
        return sharing

    def _check_functions(self, lib: Any) -> None:
        for name in dir(lib):
            try:
                getattr(lib, name)
            except AttributeError:
                raise UnavailableError(f"{self.path}: does not export {name}") from None

    def text(self, pointer: Any) -> str:
        """A C string as text."""
        return bytes(self.ffi.string(pointer)).decode("utf-8", "replace")

    def new_error(self) -> Any:
        """An empty kv_error."""
        return self.ffi.new("kv_error *")
