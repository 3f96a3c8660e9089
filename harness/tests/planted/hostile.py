"""WebAssembly modules that break their promises, made from the scalar module of this project.

A module cannot be linked against another without the engine's linker, so each fault is a whole
module: a text with the exports of kvassay.h, whose functions do nothing but what the fault needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import wasmtime

from kvassay_backends.wasm.layout import layout, signatures
from kvassay_backends.wasm.module import EXTRAS

#: Where the texts, the info and the heap of a made module lie.
INFO: Final = 1024
_NAME: Final = 1100
_HEAP: Final = 4096

#: Bodies of functions that make a module credible up to the point where it fails.
HONEST: Final = {
    "kv_get_info": f"i32.const {INFO}",
    "kv_variant_name": f"i32.const {_NAME}",
    # a bump allocator over the first pages: enough for a trial
    "kv_wasm_alloc": """global.get $top global.get $top local.get 0 i32.add i32.const 63 i32.add
        i32.const -64 i32.and global.set $top""",
    "kv_cache_create": "local.get 1 i32.const 64 i32.store i32.const 0",
}
#: What each faulty module does instead.
FAULTS: Final = {
    "trap": {"kv_cache_append": "unreachable"},
    "loop": {"kv_cache_append": "(loop $again (br $again)) i32.const 0"},
    "lying allocator": {"kv_wasm_alloc": "i32.const -65536"},
    "lying info": {"kv_get_info": "i32.const -16"},
    "lying dump": {"kv_cache_dump_bytes": "local.get 1 i64.const -1 i64.store i32.const 0"},
    "lying length": {"kv_cache_length": "i64.const 0x7fffffffffff"},
    "slow growth": {  # within its memory and its instructions, if not within its time
        "kv_cache_append": """(loop $again (drop (memory.grow (i32.const 1))) (br $again))
            i32.const 0"""
    },
    "growth": {
        "kv_cache_append": """(loop $again
            (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
            unreachable"""
    },
}


def make(folder: Path, name: str, bodies: dict[str, str] | None = None, extra: str = "") -> Path:
    """The file of a made module with these function bodies."""
    path = folder / f"{name.replace(' ', '_')}.wasm"
    path.write_bytes(wasmtime.wat2wasm(_text({**HONEST, **(bodies or FAULTS[name])}, extra)))
    return path


def _text(bodies: dict[str, str], extra: str) -> str:
    functions = []
    known = {**signatures(), "kv_wasm_alloc": EXTRAS["kv_wasm_alloc"]}
    for name, (parameters, results) in {**known, "kv_wasm_free": EXTRAS["kv_wasm_free"]}.items():
        body = bodies.get(name) or (f"{results[0]}.const 0" if results else "")
        heads = " ".join(f"(param {kind})" for kind in parameters)
        ends = " ".join(f"(result {kind})" for kind in results)
        functions.append(f'(func (export "{name}") {heads} {ends} {body})')
    info = layout("kv_info").pack(
        {
            "abi_version": 1,
            "contract_version": 1,
            "page_version": 2,
            "dump_version": 1,
            "flags": 3,
            "variant_count": 1,
            "name": _NAME,
            "build_id": _NAME,
        }
    )
    data = "".join(f"\\{byte:02x}" for byte in info)
    return f"""(module {extra} (memory (export "memory") 2)
        (global $top (mut i32) (i32.const {_HEAP}))
        (data (i32.const {INFO}) "{data}")
        (data (i32.const {_NAME}) "hostile\\00")
        {" ".join(functions)})"""
