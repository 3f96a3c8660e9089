"""Runs the C test programs (all, or those named), built for aarch64, under an emulator.

On aarch64 Linux they run natively.

A machine without the emulator gets "emulated C programs not run: ..." and success, unless
KVASSAY_REQUIRE_VARIANTS names a variant of aarch64: then that is a failure, and so is each such
variant that does not run.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import cross_build
import hatch_build as recipe

EMULATOR = "qemu-aarch64-static"
TESTS = recipe.SOURCES / "tests"
MACHINE = ("-target", cross_build.SERVER.triple, "-mcpu=baseline")
INCLUDE = (f"-I{recipe.SOURCES / 'include'}", f"-I{recipe.SOURCES}")
# How a program says that it tested nothing (as automake and meson have it).
NOT_RUN = 77


def build_programs(names: list[str], output: Path) -> list[Path]:
    """Programs of `src/tests` (no names: all), static; BuildError where there is none."""
    flags = (*MACHINE, *recipe.C_FLAGS, *INCLUDE)
    sources = {path.stem: path for path in sorted(TESTS.glob("*.c"))}
    unknown = sorted(set(names) - set(sources))
    if unknown or not sources:
        raise recipe.BuildError(f"no C test program {', '.join(unknown)} in {TESTS}")
    files = recipe.sources(cross_build.SERVER.machine)
    objects = [str(path) for path in recipe._compile(files, flags, "emulated", output)]
    programs = []
    for name in names or sources:
        program, source = output / name, sources[name]
        recipe._zig("cc", *flags, str(source), *objects, "-static", "-lm", "-o", str(program))
        programs.append(program)
    return programs


def run_programs(launcher: tuple[str, ...], programs: list[Path]) -> int:
    """Run them; how many failed."""
    failed = 0
    for program in programs:
        status = subprocess.run([*launcher, str(program)]).returncode
        said = {0: "ok", NOT_RUN: "not run"}.get(status, f"failed with status {status}")
        print(f"{program.name}: {said}", flush=True)
        failed += status not in (0, NOT_RUN)
    how = f"emulated by {launcher[0]}" if launcher else "run natively"
    print(f"{len(programs)} C programs of aarch64 {how}: {failed} failed")
    return failed


def main() -> int:
    """Build and run; 0 when no program failed."""
    required = set(os.environ.get("KVASSAY_REQUIRE_VARIANTS", "").split(","))
    native = platform.system() == "Linux" and platform.machine() == "aarch64"
    if not native and shutil.which(EMULATOR) is None:
        print(f"emulated C programs not run: {EMULATOR} missing: apt install qemu-user-static")
        return int(bool(required & set(recipe.ISA_FLAGS["aarch64"]) - {"scalar"}))
    with tempfile.TemporaryDirectory() as folder:
        try:
            programs = build_programs(sys.argv[1:], Path(folder))
        except recipe.BuildError as error:
            print(error, file=sys.stderr)
            return 1
        return int(run_programs(() if native else (EMULATOR,), programs) > 0)


if __name__ == "__main__":
    sys.exit(main())
