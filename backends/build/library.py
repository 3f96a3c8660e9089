"""Makes the native library and the WebAssembly modules, with records of what they are made of."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import recipe
from recipe import RECORD, SOURCES, Target, Unit
from zig import compile_units, zig


def build(target: Target, output: Path) -> dict[str, object]:
    """Compile and link the library for `target`; put it, its header and its record into `output`.

    Each file is replaced in one step, so a process that has the old library open keeps it.
    Returns the record (BuildRecord of build_info.py).
    """
    units = recipe.sources(target.machine)
    record = record_of(target, units, recipe.BUILD_INFO["source_digest"]())
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output) as scratch:
        made = Path(scratch)
        objects = compile_units(units, machine_flags(target), str(record["build_id"]), made)
        # Without -z defs an ELF library links with symbols that exist nowhere and fails when
        # loaded.
        defined = ("-Wl,-z,defs",) if "linux" in target.triple else ()
        link = ("cc", "-target", target.triple, "-mcpu=baseline", "-shared", "-s", *defined)
        if target.import_library:
            link += (f"-Wl,--out-implib,{made / target.import_library}",)
        library = made / target.library
        zig(*link, "-o", str(library), *map(str, objects), "-lm", "-pthread")
        for name in recipe.HEADERS:
            shutil.copyfile(SOURCES / "include" / name, made / name)
        text = json.dumps(record, indent=2) + "\n"
        (made / RECORD).write_text(text, encoding="utf-8")
        for name in filter(None, (target.library, target.import_library, *recipe.HEADERS, RECORD)):
            os.replace(made / name, output / name)
    return record


def build_static(target: Target, output: Path) -> Path:
    """The static library for `target` in `output`, of the same objects as the shared one."""
    units = recipe.sources(target.machine)
    record = record_of(target, units, recipe.BUILD_INFO["source_digest"]())
    made = output / ("kvassay_static.lib" if "windows" in target.triple else "libkvassay.a")
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output) as scratch:
        folder = Path(scratch)
        objects = compile_units(units, machine_flags(target), str(record["build_id"]), folder)
        zig("ar", "rcsD", str(made), *map(str, objects))  # D: no times, no owners
    return made


def machine_flags(target: Target) -> tuple[str, ...]:
    """What every C file is compiled with for `target`."""
    return ("-target", target.triple, "-mcpu=baseline", *recipe.C_FLAGS, *recipe.INCLUDE)


def record_of(target: Target, units: Iterable[Unit], digest: str | None) -> dict[str, object]:
    """The record (BuildRecord of build_info.py) of what is made for `target`."""
    if digest is None:
        raise recipe.BuildError(f"no header {SOURCES / 'include' / recipe.HEADER}")
    record: dict[str, object] = {
        "sources_digest": digest,
        "target": target.triple,
        "zig": zig("version").strip(),
        "flags": list(recipe.C_FLAGS),
        "files": {unit.name: list(unit.flags) for unit in units},
        "library": target.library,
    }
    return {"build_id": _identity(record), **record}


def build_wasm(output: Path) -> dict[str, object]:
    """Compile and link one module a variant; put them and their record into `output`.

    Returns the record (WasmRecord of build_info.py).
    """
    variants = {name: recipe.wasm_sources(name) for name in recipe.ISAS["wasm32"]}
    folders, left_out = recipe.BUILD_INFO["WASM_FOLDERS"], ()
    record: dict[str, object] = {
        "sources_digest": recipe.BUILD_INFO["source_digest"](folders, left_out),
        "target": recipe.WASM_TRIPLE,
        "zig": zig("version").strip(),
        "flags": [*recipe.WASM_MACHINE, *recipe.COMMON_FLAGS],
        "link": list(recipe.WASM_LINK),
    }
    files = {
        name: {unit.name: list(unit.flags) for unit in units} for name, units in variants.items()
    }
    build_id = _identity({**record, "files": files})
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output) as scratch:
        made = Path(scratch)
        modules = {}
        for name, units in variants.items():
            module = made / f"kvassay-{name}.wasm"
            link_wasm(units, build_id, module)
            content = module.read_bytes()
            modules[name] = {
                "file": module.name,
                "sha256": hashlib.sha256(content).hexdigest(),
                "bytes": len(content),
                "files": files[name],
            }
        record = {"build_id": build_id, **record, "modules": modules}
        (made / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        for file in (*(f"kvassay-{name}.wasm" for name in variants), RECORD):
            os.replace(made / file, output / file)
    return record


def link_wasm(units: Iterable[Unit], build_id: str, module: Path) -> None:
    """Compile the units and link them into `module`."""
    libc = f"-I{SOURCES / 'wasm' / 'libc'}"
    flags = (*recipe.WASM_MACHINE, *recipe.COMMON_FLAGS, *recipe.INCLUDE, libc)
    objects = compile_units(units, (*flags, '-DKV_BUILD_NAME="wasm"'), build_id, module.parent)
    zig("wasm-ld", *recipe.WASM_LINK, "-o", str(module), *map(str, objects))


def _identity(record: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
