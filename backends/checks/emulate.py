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

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "build"))

import cross
import library
import recipe
from programs import NOT_RUN, programs
from zig import compile_units, zig

EMULATOR = "qemu-aarch64-static"


def build_programs(names: list[str], output: Path) -> list[Path]:
    """Test programs (no names: all), static; BuildError where there is none."""
    flags = library.machine_flags(cross.SERVER)
    wanted = programs(cross.SERVER.machine, *names)
    units = recipe.sources(cross.SERVER.machine)
    objects = [str(path) for path in compile_units(units, flags, "emulated", output)]
    made = []
    for program in wanted:
        made.append(output / program.name)
        own = (*flags, *program.flags, str(program.source))
        zig("cc", *own, *objects, "-static", "-lm", "-o", str(made[-1]))
    return made


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
        return int(bool(required & set(recipe.ISAS["aarch64"]) - {"scalar"}))
    with tempfile.TemporaryDirectory() as folder:
        try:
            programs = build_programs(sys.argv[1:], Path(folder))
        except recipe.BuildError as error:
            print(error, file=sys.stderr)
            return 1
        return int(run_programs(() if native else (EMULATOR,), programs) > 0)


if __name__ == "__main__":
    sys.exit(main())
