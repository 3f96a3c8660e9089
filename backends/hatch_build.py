"""Compiles the C sources with the zig compiler of the `ziglang` wheel: the native library and the
WebAssembly modules. Has `rust_build.py` build the Rust library, where there is a cargo.

As a hatchling hook it runs in every wheel build and every `pip install`, editable or not; as a
script (`python backends/hatch_build.py`) it rebuilds all in a checkout, in place.
"""

import hashlib
import json
import os
import platform
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BACKENDS = Path(__file__).resolve().parent
SOURCES = BACKENDS / "src"
NATIVE = BACKENDS / "kvassay_backends" / "native"
WASM = BACKENDS / "kvassay_backends" / "wasm"

# By its path: importing its package would need the runtime dependencies.
BUILD_INFO = runpy.run_path(str(NATIVE / "build_info.py"))
HEADER: str = BUILD_INFO["HEADER_NAME"]
HEADERS: tuple[str, ...] = (
    *(HEADER, BUILD_INFO["BLOCK_HEADER_NAME"]),
    *(BUILD_INFO["SHARE_HEADER_NAME"], BUILD_INFO["RETRIEVAL_HEADER_NAME"]),
    BUILD_INFO["BOUNDED_HEADER_NAME"],
)
RECORD: str = BUILD_INFO["RECORD_NAME"]
RUST_RECIPE = BACKENDS / "rust_build.py"

_COMMON_FLAGS = (
    "-std=c11",
    "-O2",
    "-g0",
    "-ffp-contract=off",  # a fused multiply-add rounds once where the numeric contract rounds twice
    "-fno-fast-math",
    "-fno-math-errno",  # sqrtf becomes the instruction, which is exact, instead of a call
    "-fno-sanitize=undefined",  # zig adds traps of its own otherwise
    "-fvisibility=hidden",  # only what kvassay.h marks is exported
    "-Wall",
    "-Wextra",
    "-Werror",
)
C_FLAGS = (*_COMMON_FLAGS, "-fPIC", "-pthread")

_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mf16c", "-mpclmul")

# Instruction sets by machine, with the flags each adds to the machine's baseline. A file below
# `kernels` and `linear` names its own first: scalar.c, scalar_kivi.c. One that belongs to another
# machine is left out; one that belongs to none is an error.
ISA_FLAGS: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "x86_64": {
            "scalar": (),
            "avx2": ("-mavx2", "-mf16c", "-mpclmul", "-mno-fma"),
            "avx512": _AVX512,
            "avx512vnni": (*_AVX512, "-mavx512vbmi", "-mavx512vnni"),
        },
        "aarch64": {"scalar": (), "neon": (), "neondot": ("-mcpu=generic+dotprod+crc",)},
        "wasm32": {
            "scalar": (),
            "simd128": ("-msimd128",),
            "relaxed": ("-msimd128", "-DKV_WASM_RELAXED"),
        },
    }
)

WASM_TRIPLE = "wasm32-freestanding"  # no WASI: a module imports nothing
# What every engine has had since 2021. With "mutable-globals" the linker would export its own.
WASM_MACHINE = ("-target", WASM_TRIPLE, "-mcpu=mvp+bulk_memory+sign_ext+nontrapping_fptoint")
# What each token and page goes through in `core`; the rest of it is built for size.
WASM_HOT = (
    *("attend", "cache_append", "cache_store", "chunk", "job"),
    *("logits", "recent", "scale", "sums", "values"),
)
WASM_LINK = (
    "--no-entry",
    "--export-dynamic",
    "--gc-sections",
    "-s",
    "--stack-first",  # an overflow traps instead of reaching data
    "-z",
    "stack-size=131072",
)


class BuildError(RuntimeError):
    """The library cannot be built here; the message says what failed and what to do."""


@dataclass(frozen=True)
class Target:
    """A machine the library is compiled for."""

    triple: str
    """zig's name of the machine, with the oldest C library or system it must run on."""
    wheel_tag: str
    """The platform part of the wheel's file name."""
    library: str
    """File name of the shared library."""

    @property
    def machine(self) -> str:
        """The processor family: the first part of the triple."""
        return self.triple.partition("-")[0]


TARGETS: Mapping[tuple[str, str], Target] = MappingProxyType(
    {
        ("Linux", "x86_64"): Target(
            "x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64", "libkvassay.so"
        ),
        ("Linux", "aarch64"): Target(
            "aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64", "libkvassay.so"
        ),
        ("Darwin", "x86_64"): Target("x86_64-macos.11.0", "macosx_11_0_x86_64", "libkvassay.dylib"),
        ("Darwin", "arm64"): Target("aarch64-macos.11.0", "macosx_11_0_arm64", "libkvassay.dylib"),
        ("Windows", "AMD64"): Target("x86_64-windows-gnu", "win_amd64", "kvassay.dll"),
    }
)


TARGET_VARIABLE = "KVASSAY_TARGET"


def host_target() -> Target:
    """The target of the running interpreter; BuildError on a machine that is not in TARGETS."""
    host = (platform.system(), platform.machine())
    if host not in TARGETS:
        known = ", ".join(f"{system} {machine}" for system, machine in TARGETS)
        raise BuildError(f"no build target for {host[0]} {host[1]}; there are: {known}")
    return TARGETS[host]


def wanted_target() -> Target:
    """The target that KVASSAY_TARGET names, or this machine's. A wheel for another is not run."""
    name = os.environ.get(TARGET_VARIABLE)
    if not name:
        return host_target()
    known = {target.triple: target for target in TARGETS.values()}
    if name not in known:
        raise BuildError(f"{TARGET_VARIABLE}: no target {name}; there are: {', '.join(known)}")
    return known[name]


def sources(machine: str) -> dict[Path, tuple[str, ...]]:
    """The C files compiled for a processor family, each with its extra flags, in path order."""
    common = ("core", "block", "ort", "retrieval")
    files: dict[Path, tuple[str, ...]] = dict.fromkeys(
        [path for folder in common for path in SOURCES.glob(f"{folder}/**/*.c")], ()
    )
    for path in [path for at in ("kernels", "linear") for path in SOURCES.glob(f"{at}/**/*.c")]:
        isa = _instruction_set(path)
        if isa in ISA_FLAGS[machine]:
            files[path] = ISA_FLAGS[machine][isa]
    if not files:
        raise BuildError(f"no C sources for {machine} under {SOURCES}")
    return dict(sorted(files.items()))


def _instruction_set(path: Path) -> str:
    """The instruction set that a kernel file names; BuildError if no machine has it."""
    isa = path.stem.partition("_")[0]
    known = {name for flags in ISA_FLAGS.values() for name in flags}
    if isa not in known:
        names = ", ".join(sorted(known))
        raise BuildError(f"{path}: {isa} is no instruction set of ISA_FLAGS ({names})")
    return isa


def wasm_sources(variant: str) -> dict[Path, tuple[str, ...]]:
    """The C files of one WebAssembly module, like `sources`: the kernels of one variant alone.

    Files of `decoder` that name an instruction set belong to its module, others to each.
    """
    variants = ISA_FLAGS["wasm32"]
    common = ("core", "retrieval", "wasm")
    found = [path for folder in common for path in SOURCES.glob(f"{folder}/**/*.c")]
    found += [path for path in SOURCES.glob("kernels/**/*.c") if _instruction_set(path) == variant]
    for path in SOURCES.glob("decoder/**/*.c"):
        if path.stem.partition("_")[0] not in variants.keys() - {variant}:
            found.append(path)
    # Kernels alone: given leave, the compiler makes relaxed minima out of comparisons anywhere.
    loose = {path: ("-mrelaxed-simd",) for path in found if path.stem.startswith("relaxed")}
    # Pages load a module over a network, and in most of the core no time is spent.
    core = [path for path in found if path.is_relative_to(SOURCES / "core")]
    small = {path: ("-Os",) for path in core if path.stem not in WASM_HOT}
    return {
        path: variants[variant] + small.get(path, ()) + loose.get(path, ())
        for path in sorted(found)
    }


def build(target: Target, output: Path) -> dict[str, object]:
    """Compile and link the library for `target`; put it, its header and its record into `output`.

    Each file is replaced in one step, so a process that has the old library open keeps it.
    Returns the record (BuildRecord of build_info.py).
    """
    files = sources(target.machine)
    record: dict[str, object] = {
        "sources_digest": BUILD_INFO["source_digest"](),
        "target": target.triple,
        "zig": _zig("version").strip(),
        "flags": list(C_FLAGS),
        "files": {path.relative_to(SOURCES).as_posix(): list(own) for path, own in files.items()},
        "library": target.library,
    }
    if record["sources_digest"] is None:
        raise BuildError(f"no header {SOURCES / 'include' / HEADER}")
    identity = json.dumps(record, sort_keys=True).encode()
    record = {"build_id": hashlib.sha256(identity).hexdigest(), **record}

    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output) as scratch:
        made = Path(scratch)
        _compile_and_link(target, files, str(record["build_id"]), made / target.library)
        for name in HEADERS:
            shutil.copyfile(SOURCES / "include" / name, made / name)
        text = json.dumps(record, indent=2) + "\n"
        (made / RECORD).write_text(text, encoding="utf-8")
        for name in (target.library, *HEADERS, RECORD):
            os.replace(made / name, output / name)
    return record


def build_wasm(output: Path) -> dict[str, object]:
    """Compile and link one module a variant; put them and their record into `output`.

    Returns the record (WasmRecord of build_info.py).
    """
    variants = {name: wasm_sources(name) for name in ISA_FLAGS["wasm32"]}
    folders, left_out = BUILD_INFO["WASM_FOLDERS"], ()
    record: dict[str, object] = {
        "sources_digest": BUILD_INFO["source_digest"](folders, left_out),
        "target": WASM_TRIPLE,
        "zig": _zig("version").strip(),
        "flags": [*WASM_MACHINE, *_COMMON_FLAGS],
        "link": list(WASM_LINK),
    }
    files = {
        name: {path.relative_to(SOURCES).as_posix(): list(own) for path, own in found.items()}
        for name, found in variants.items()
    }
    identity = json.dumps({**record, "files": files}, sort_keys=True).encode()
    build_id = hashlib.sha256(identity).hexdigest()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output) as scratch:
        made = Path(scratch)
        modules = {}
        for name, found in variants.items():
            module = made / f"kvassay-{name}.wasm"
            link_wasm(found, build_id, module)
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


def link_wasm(files: Mapping[Path, tuple[str, ...]], build_id: str, module: Path) -> None:
    """Compile the files and link them into `module`."""
    include = (f"-I{SOURCES / 'include'}", f"-I{SOURCES}", f"-I{SOURCES / 'wasm' / 'libc'}")
    flags = (*WASM_MACHINE, *_COMMON_FLAGS, *include)
    objects = _compile(files, (*flags, '-DKV_BUILD_NAME="wasm"'), build_id, module.parent)
    _zig("wasm-ld", *WASM_LINK, "-o", str(module), *map(str, objects))


def _compile_and_link(
    target: Target, files: Mapping[Path, tuple[str, ...]], build_id: str, library: Path
) -> None:
    machine = ("-target", target.triple, "-mcpu=baseline")
    common = (*machine, *C_FLAGS, f"-I{SOURCES / 'include'}", f"-I{SOURCES}")
    objects = _compile(files, common, build_id, library.parent)
    # Without -z defs an ELF library links with symbols that exist nowhere and fails when loaded.
    defined = ("-Wl,-z,defs",) if "linux" in target.triple else ()
    link = ("cc", *machine, "-shared", "-s", *defined, "-o", str(library))
    _zig(*link, *map(str, objects), "-lm", "-pthread")


def _compile(
    files: Mapping[Path, tuple[str, ...]], flags: tuple[str, ...], build_id: str, output: Path
) -> list[Path]:
    """The object file of each source."""
    define = f'-DKV_BUILD_ID="{build_id}"'

    def compile_one(path: Path, own: tuple[str, ...]) -> Path:
        made = output / (path.relative_to(SOURCES).as_posix().replace("/", ".") + ".o")
        # Only core/info.c has the id: the others stay the same for the compiler's cache.
        stamp = (define,) if path.name == "info.c" else ()
        _zig("cc", *flags, *own, *stamp, "-c", str(path), "-o", str(made))
        return made

    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(compile_one, files.keys(), files.values()))


def _zig(*arguments: str) -> str:
    """Run zig and return what it printed; BuildError with the compiler's message if it fails."""
    command = [sys.executable, "-m", "ziglang", *arguments]
    done = subprocess.run(command, env=_zig_environment(), capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"zig {' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout


def _zig_environment() -> dict[str, str]:
    """The environment, with a cache that zig can write where the usual place is not writable."""
    environment = dict(os.environ)
    if "ZIG_GLOBAL_CACHE_DIR" not in environment:
        usual = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "zig"
        try:
            usual.mkdir(parents=True, exist_ok=True)
        except OSError:
            usual = Path(tempfile.gettempdir()) / "kvassay-zig-cache"
        environment["ZIG_GLOBAL_CACHE_DIR"] = str(usual)
    return environment


class NativeBuildHook(BuildHookInterface[Any]):
    """Compiles everything before a wheel is put together and marks the wheel for its platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build in place; `version` is "standard" or "editable", and both need what is built."""
        target = wanted_target()
        output = NATIVE / "_lib"
        record = build(target, output)
        self.app.display_info(f"built {target.library} {record['build_id']} ({target.triple})")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{target.wheel_tag}"
        made = [output / name for name in (target.library, *HEADERS, RECORD)]
        modules = build_wasm(WASM / "_lib")["modules"]
        assert isinstance(modules, dict)
        made += [WASM / "_lib" / module["file"] for module in modules.values()]
        made.append(WASM / "_lib" / RECORD)
        recipe = runpy.run_path(str(RUST_RECIPE))
        rust = recipe["build"](target.triple, target == host_target())
        self.app.display_info(f"Rust library: {rust.get('build_id') or rust['reason']}")
        made += [recipe["OUTPUT"] / name for name in (RECORD, rust.get("library")) if name]
        build_data["artifacts"] += [str(path.relative_to(BACKENDS.parent)) for path in made]


def main() -> int:
    """Rebuild what this checkout has; of it only what is named: `native`, `wasm`, `rust`."""
    wanted = sys.argv[1:] or ["native", "wasm", *(["rust"] if RUST_RECIPE.is_file() else [])]
    try:
        if "native" in wanted:
            record = build(host_target(), NATIVE / "_lib")
            print(f"{NATIVE / '_lib' / str(record['library'])}\nbuild id {record['build_id']}")
        if "wasm" in wanted:
            record = build_wasm(WASM / "_lib")
            print(f"{WASM / '_lib'}\nbuild id {record['build_id']}")
        if "rust" in wanted:
            recipe = runpy.run_path(str(RUST_RECIPE))
            rust = recipe["build"](host_target().triple, here=True)
            print(f"{recipe['OUTPUT']}\nRust: {rust.get('build_id') or rust['reason']}")
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
