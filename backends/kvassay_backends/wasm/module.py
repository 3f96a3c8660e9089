"""A WebAssembly module that exports the functions of kvassay.h, checked before it runs."""

from __future__ import annotations

import atexit
import hashlib
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvassay.errors import UnavailableError

from ..native.abi import needed
from .faults import ModuleFault
from .layout import Signatures, retrieval_signatures, signatures

if TYPE_CHECKING:
    import wasmtime

INSTALL: Final = "pip install 'kvassay[wasm]'"
#: What a module may offer beyond kvassay.h (docs/wasm.md), with its type.
EXTRAS: Final = {
    "kv_wasm_alloc": (("i32",), ("i32",)),
    "kv_wasm_free": (("i32", "i32"), ()),
    "kv_wasm_reserve": (("i32",), ("i32",)),
    "kv_wasm_set_cap": (("i32",), ()),
    "kv_wasm_cap": ((), ("i32",)),
    "kv_wasm_pages": ((), ("i32",)),
    "kv_wasm_growths": ((), ("i32",)),
    "kv_wasm_used": ((), ("i32",)),
    "kv_wasm_high_water": ((), ("i32",)),
    "kv_wasm_refused": ((), ("i64",)),
    "kv_wasm_left": ((), ("i64",)),
    "kv_error_bound": ((), ("f64",)),  # of kvassay_bounded.h
}
#: Of these, what a host cannot do without: it has to put tokens somewhere.
REQUIRED: Final = ("kv_wasm_alloc", "kv_wasm_free")


def callable_exports() -> Signatures:
    """Everything that a module may export for this host to call, with its type."""
    return {**signatures(), **retrieval_signatures(), **EXTRAS}


def installed() -> bool:
    """Whether the wasmtime package is there."""
    return find_spec("wasmtime") is not None


def load_wasmtime() -> Any:
    """The wasmtime package; UnavailableError with the command that installs it."""
    try:
        return import_module("wasmtime")
    except ImportError as error:
        raise UnavailableError(f"wasmtime cannot be imported ({error}); {INSTALL}") from None


@cache
def engine(metered: bool) -> wasmtime.Engine:
    """The engine of this process; a metered one counts instructions and may be
    interrupted, which costs some speed."""
    package = load_wasmtime()
    config = package.Config()
    config.consume_fuel = metered
    config.epoch_interruption = metered
    made: wasmtime.Engine = package.Engine(config)
    atexit.register(made.close)  # left to the interpreter's end, it would outlive its own package
    atexit.register(_compile.cache_clear)  # and before it what it compiled
    return made


def engine_name() -> str:
    """The engine and its version, for records."""
    return f"wasmtime {version('wasmtime')}"


@dataclass(frozen=True)
class Module:
    """A compiled module whose imports and exports were checked."""

    path: Path
    sha256: str
    metered: bool
    """Counts instructions, so that they can be limited and recorded."""
    compiled: Any = field(repr=False)
    data: bytes = field(repr=False)
    exports: frozenset[str] = field(repr=False)

    @classmethod
    def open(cls, path: Path, metered: bool = False) -> Module:
        """Compile a file; UnavailableError or ModuleFault says why it cannot be used."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UnavailableError(f"{path}: {error.strerror}") from None
        return cls.of(data, path, metered)

    @classmethod
    def of(cls, data: bytes, path: Path, metered: bool = False) -> Module:
        """Compile bytes that came from `path`."""
        compiled = _compile(data, path, metered)
        _check_imports(path, compiled)
        exports = _check_exports(path, compiled)
        return cls(path, hashlib.sha256(data).hexdigest(), metered, compiled, data, exports)

    def metering(self) -> Module:
        """The same module counting its instructions."""
        return self if self.metered else Module.of(self.data, self.path, metered=True)


@lru_cache(maxsize=16)
def _compile(data: bytes, path: Path, metered: bool) -> Any:
    """What wasmtime makes of a module: half a second of work, and many caches are of one module."""
    package = load_wasmtime()
    try:
        return package.Module(engine(metered), data)
    except package.WasmtimeError as error:
        raise UnavailableError(f"{path}: not a module wasmtime runs: {_short(error)}") from None


def _check_imports(path: Path, compiled: Any) -> None:
    for wanted in compiled.imports:
        raise ModuleFault(
            f"{path.name}: imports {wanted.module}.{wanted.name}; a module may import nothing "
            f"(docs/wasm.md)",
            kind="import",
        )


def _check_exports(path: Path, compiled: Any) -> frozenset[str]:
    """Names of all exports, once everything needed is there and of the right type."""
    found = {export.name: _type(export.type) for export in compiled.exports}
    if found.get("memory") != "memory":
        raise ModuleFault(f"{path.name}: exports no memory named 'memory'", kind="export")
    for name, expected in callable_exports().items():
        if name not in found and not _always(name):
            continue
        if found.get(name) != expected:
            has = f"has type {found[name]}" if name in found else "is missing"
            raise ModuleFault(
                f"{path.name}: export {name} {has}, needed is {expected[0]} -> {expected[1]}",
                kind="export",
            )
    return frozenset(found)


def _always(name: str) -> bool:
    """Whether every module needs an export, be it a whole cache or kernels."""
    return name in REQUIRED or (name in signatures() and needed(name, True) and needed(name, False))


def _type(type_: Any) -> Any:
    if hasattr(type_, "params"):
        return tuple(map(str, type_.params)), tuple(map(str, type_.results))
    return "memory" if hasattr(type_, "limits") and not hasattr(type_, "element") else "other"


def _short(error: Exception) -> str:
    """The first line of what wasmtime says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
