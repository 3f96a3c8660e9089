"""The C test programs: the files of `src/tests`, and some once more over emulated intrinsics."""

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "build"))

import recipe

TESTS = recipe.SOURCES / "tests"
# How a program says that it tested nothing (as automake and meson have it).
NOT_RUN = 77
# What runs over an emulation of the intrinsics, for each instruction set that has this parent.
EMULATED = ("kernels_variants", "retrieval")
EMULATED_PARENT = "avx512"


@dataclass(frozen=True)
class Program:
    """A test program: one file and the library's objects."""

    name: str
    source: Path
    flags: tuple[str, ...] = ()


def programs(machine: str, *names: str) -> list[Program]:
    """All that a machine has, or those named; BuildError where one does not exist."""
    found = {path.stem: Program(path.stem, path) for path in sorted(TESTS.glob("*.c"))}
    for isa in recipe.ISAS[machine] if found else ():
        if EMULATED_PARENT in (isa, *recipe.ISAS[machine][isa].parents):
            found |= {made.name: made for made in _emulated(machine, isa)}
    unknown = sorted(set(names) - set(found))
    if unknown or not found:
        raise recipe.BuildError(f"no C test program {', '.join(unknown)} in {TESTS}")
    return [found[name] for name in names or found]


def _emulated(machine: str, isa: str) -> list[Program]:
    """The programs over emulated intrinsics, told of the instructions that the recipe names."""
    files = {path.parent.name: path for path in recipe.kernel_files(machine, isa)}
    told = [
        f"-DKV_EMULATE_{flag.removeprefix('-m').upper()}"
        for flag in recipe.ISAS[machine][isa].flags
    ]
    sources = [
        f'-DKV_EMULATED_{folder.upper()}="{files[folder].relative_to(recipe.SOURCES).as_posix()}"'
        for folder in ("keyscan", "valuesum")
    ]
    return [
        Program(
            name := f"{test}_emulated_{isa}",
            TESTS / "emulated" / "program.c",
            (
                *("-DKV_ISA=emulated", *told, *sources),
                *(f'-DKV_EMULATED_TEST="tests/{test}.c"', f'-DKV_EMULATED_NAME="{name}"'),
            ),
        )
        for test in EMULATED
    ]
