"""A shared library that exports the functions of kvassay.h, loaded through cffi in ABI mode.

The header itself is what cffi reads: the text between its BEGIN and END marks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

import cffi

from kvassay.backend.fences import active
from kvassay.errors import UnavailableError

from . import memory
from .build_info import (
    BOUNDED_HEADER_NAME,
    HEADER_NAME,
    LIBRARY_DIR,
    RETRIEVAL_HEADER_NAME,
    SHARE_HEADER_NAME,
    SOURCE_DIR,
)
from .failures import check

_BEGIN: Final = "/* BEGIN declarations */"
_END: Final = "/* END declarations */"

#: Field of kv_info, constant of the header it must equal.
_VERSIONS: Final = (
    ("abi_version", "KV_ABI_VERSION"),
    ("contract_version", "KV_CONTRACT_VERSION"),
    ("page_version", "KV_PAGE_VERSION"),
    ("dump_version", "KV_DUMP_VERSION"),
)

#: Functions that a library of pure kernels must have beside those which every library has; one with
#: a whole cache needs none of them.
KERNELS: Final = frozenset(
    f"kv_{name}"
    for name in (
        *("plan_bytes", "plan_init", "plan_page_bytes", "plan_scratch_bytes"),
        *("scratch_ran", "scratch_init", "page_encode", "attend", "scores"),
    )
)
#: Functions of the header for callers in C: kvassay calls them in no library.
FOR_CALLERS: Final = frozenset({"kv_plan_variant", "kv_page_mean", "kv_page_check"})
#: Said of what declares no accuracy at all.
UNPROMISED: Final = (
    f"promises neither bits (KV_FLAG_EXACT) nor a bound; set KV_FLAG_BOUNDED and export "
    f"kv_error_bound ({BOUNDED_HEADER_NAME})"
)
_CACHE: Final = "kv_cache_"

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


@cache
def bounded_interface() -> Any:
    """What kvassay_bounded.h adds to it."""
    ffi = cffi.FFI()
    ffi.cdef(declarations(header_path(BOUNDED_HEADER_NAME).read_text(encoding="utf-8")))
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
        self._check_functions(self.lib, ["kv_get_info"])
        info = self.lib.kv_get_info()
        for field, constant in _VERSIONS:
            found, expected = getattr(info, field), getattr(self.lib, constant)
            if found != expected:
                raise UnavailableError(
                    f"{path}: {field} is {found}, this kvassay needs {expected}; build the library "
                    f"against its {HEADER_NAME}"
                )
        #: Offers a whole cache; else pure kernels, and the life cycle is the harness's.
        self.stateful = bool(info.flags & self.lib.KV_FLAG_CACHE)
        wanted = [name for name in dir(self.lib) if needed(name, self.stateful)]
        self._check_functions(self.lib, wanted)
        #: The functions of kvassay_share.h, None where the library does not say it has them.
        self.sharing: Any = self._open_sharing(info.flags)
        self.exact = bool(info.flags & self.lib.KV_FLAG_EXACT)
        #: Relative RMS that it may be off; None for an exact one.
        self.bound = None if self.exact else self._declared_bound(info.flags)
        self.build_id = self.text(info.build_id)
        names = (self.lib.kv_variant_name(index) for index in range(info.variant_count))
        #: Takes memory from the system alone, and refuses an allocator of the caller's.
        self.own_memory = False
        #: Names by number. The library lists them from the most portable to the fastest.
        self.variants: tuple[str, ...] = tuple(self.text(name) for name in names)

    def _open_sharing(self, flags: int) -> Any:
        sharing = sharing_interface().dlopen(str(self.path))
        if not (self.stateful and flags & sharing.KV_FLAG_SHARE):
            return None
        _never_unloaded.append(sharing)
        self._check_functions(sharing, dir(sharing))
        return sharing

    def _declared_bound(self, flags: int) -> float:
        extra = bounded_interface().dlopen(str(self.path))
        if not flags & extra.KV_FLAG_BOUNDED:
            raise UnavailableError(f"{self.path}: {UNPROMISED}")
        _never_unloaded.append(extra)
        self._check_functions(extra, ["kv_error_bound"])
        return check_bound(extra.kv_error_bound(), str(self.path))

    def _check_functions(self, lib: Any, names: Iterable[str]) -> None:
        for name in names:
            try:
                getattr(lib, name)
            except AttributeError:
                raise UnavailableError(f"{self.path}: does not export {name}") from None

    def call(self, function: Any, *arguments: Any) -> None:
        """Call a function that ends with a kv_error; raise what it reports."""
        if active() is None:
            error = self.new_error()
            code = function(*arguments, error)
        else:
            error = memory.new(self.ffi, "kv_error *")
            code = self.watch(function, *arguments, error)
        check(self, code, error)

    def watch(self, function: Any, *arguments: Any) -> Any:
        """Call any function; BoundsError if, where it is looked for, it wrote where it may not."""
        fences = active()
        if fences is None:
            return function(*arguments)
        return fences.watch(self._name(function), function, *arguments)

    def _name(self, function: Any) -> str:
        for lib in filter(None, (self.lib, self.sharing)):
            for name in dir(lib):
                if getattr(lib, name, None) == function:
                    return name
        return str(function)

    def text(self, pointer: Any) -> str:
        """A C string as text."""
        return bytes(self.ffi.string(pointer)).decode("utf-8", "replace")

    def new_error(self) -> Any:
        """An empty kv_error."""
        return self.ffi.new("kv_error *")


def needed(name: str, stateful: bool) -> bool:
    """Whether kvassay calls a function of kvassay.h, or reads a constant, where there is a whole
    cache or where there are kernels alone."""
    if name in FOR_CALLERS:
        return False
    return name not in KERNELS if stateful else not name.startswith(_CACHE)


def check_bound(bound: float, whose: str) -> float:
    """A declared bound; UnavailableError unless it is positive and finite."""
    if not (math.isfinite(bound) and bound > 0):
        raise UnavailableError(f"{whose}: kv_error_bound is {bound}, not positive and finite")
    return float(bound)
