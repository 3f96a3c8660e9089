"""What the library and the WebAssembly modules are made of: flags, files, targets."""

import os
import platform
import runpy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

BACKENDS = Path(__file__).resolve().parents[1]
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

INCLUDE = (f"-I{SOURCES / 'include'}", f"-I{SOURCES}")
COMMON_FLAGS = (
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
C_FLAGS = (*COMMON_FLAGS, "-fPIC", "-pthread")


# A file in a folder of `kernels` or `linear` names its instruction set first: scalar.c,
# scalar_kivi.c. One that belongs to no machine is an error.
ISAS: Mapping[str, Mapping[str, Any]] = runpy.run_path(str(NATIVE / "isas.py"))["ISAS"]

WASM_TRIPLE = "wasm32-freestanding"  # no WASI: a module imports nothing
# What every engine has had since 2021. With "mutable-globals" the linker would export its own.
WASM_MACHINE = ("-target", WASM_TRIPLE, "-mcpu=mvp+bulk_memory+sign_ext+nontrapping_fptoint")
# What each token and page goes through in `core`; the rest of it is built for size.
WASM_HOT = (
    *("attend/attend", "attend/chunk", "attend/job", "attend/logits", "attend/recent"),
    *("attend/values", "base/scale", "base/sums", "cache/append", "cache/store"),
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
    def import_library(self) -> str:
        """What programs for Windows link with to use the DLL; empty elsewhere."""
        return f"{Path(self.library).stem}.lib" if "windows" in self.triple else ""

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


@dataclass(frozen=True, order=True)
class Unit:
    """A C file to compile, with the flags it alone is given."""

    path: Path
    isa: str = ""
    """The instruction set whose kernels it is compiled for; "": it is no file of kernels."""
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The file below the sources, and whose kernels it becomes where it does not say so."""
        name = self.path.relative_to(SOURCES).as_posix()
        foreign = self.isa and self.isa != isa_of(self.path)
        return f"{name} for {self.isa}" if foreign else name


def isa_of(path: Path) -> str:
    """The instruction set that a file of kernels names; BuildError if no machine has it."""
    isa = path.stem.partition("_")[0]
    known = {name for isas in ISAS.values() for name in isas}
    if isa not in known:
        names = ", ".join(sorted(known))
        raise BuildError(f"{path}: {isa} is no instruction set of ISAS ({names})")
    return isa


def kernel_files(machine: str, isa: str) -> list[Path]:
    """The files that make an instruction set's kernels: its own, else the nearest parent's."""
    nearest: dict[tuple[Path, str], Path] = {}
    for name in (isa, *ISAS[machine][isa].parents):
        for path in SOURCES.glob("kernels/*/*.c"):
            if isa_of(path) == name:
                nearest.setdefault((path.parent, path.stem.removeprefix(name)), path)
    return sorted(nearest.values())


def kernel_units(machine: str, isa: str, *flags: str) -> list[Unit]:
    """What makes the kernels of one instruction set, compiled under its name."""
    own = (*flags, *ISAS[machine][isa].flags, *ISAS[machine][isa].kernels, f"-DKV_ISA={isa}")
    return [Unit(path, isa, own) for path in kernel_files(machine, isa)]


def _plain(*patterns: str) -> list[Path]:
    return [path for pattern in patterns for path in SOURCES.glob(pattern)]


def sources(machine: str) -> list[Unit]:
    """What the library of a processor family is compiled from, in the order of paths."""
    common = ("core/*/*.c", "block/*.c", "ort/*.c", "retrieval/*.c", "kernels/*.c")
    units = [Unit(path) for path in _plain(*common)]
    for name, isa in ISAS[machine].items():
        units += kernel_units(machine, name)
        units += [Unit(path, name, isa.flags) for path in _plain(f"linear/{name}.c")]
    if not units:
        raise BuildError(f"no C sources for {machine} under {SOURCES}")
    return sorted(units)


def wasm_sources(variant: str) -> list[Unit]:
    """What one WebAssembly module is compiled from: the kernels of one instruction set alone."""
    flags = (*ISAS["wasm32"][variant].flags, f"-DKV_ISA={variant}")
    # Pages load a module over a network, and in most of the core no time is spent.
    hot = {SOURCES / "core" / f"{name}.c" for name in WASM_HOT}
    units = [
        Unit(path, flags=flags if path in hot else (*flags, "-Os")) for path in _plain("core/*/*.c")
    ]
    others = ("kernels/*.c", "retrieval/*.c", "decoder/*.c", "wasm/*.c", "wasm/libc/*.c")
    units += [Unit(path, flags=flags) for path in _plain(*others)]
    return sorted(units + kernel_units("wasm32", variant))
