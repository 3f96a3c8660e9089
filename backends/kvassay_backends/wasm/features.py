"""What the engine can run: one tiny module a feature, so that nothing else can be the reason."""

from __future__ import annotations

from functools import cache
from typing import Final

from .module import engine, load_wasmtime

#: A module that uses one instruction of the feature. Engines refuse a module with an instruction
#: that they do not know as a whole.
PROBES: Final = {
    "simd128": """(module (func (param v128) (result v128)
        (i32x4.dot_i16x8_s (local.get 0) (local.get 0))))""",
    "relaxed": """(module (func (param v128) (result v128)
        (i32x4.relaxed_dot_i8x16_i7x16_add_s (local.get 0) (local.get 0) (local.get 0))))""",
}
#: What each variant needs beyond the first version of WebAssembly.
NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "scalar": (),
    "simd128": ("simd128",),
    "relaxed": ("simd128", "relaxed"),
}


@cache
def missing(feature: str) -> bool:
    """Whether the engine refuses the feature's probe."""
    package = load_wasmtime()
    try:
        package.Module.validate(engine(False), package.wat2wasm(PROBES[feature]))
    except package.WasmtimeError:
        return True
    return False


def lacks(variant: str) -> str:
    """The first feature of a variant that the engine does not have, "" if it has all."""
    return next((name for name in NEEDS.get(variant, ()) if missing(name)), "")
