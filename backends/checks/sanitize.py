"""Runs every C test program under the address and undefined-behaviour sanitizers.

zig brings no sanitizer runtime, so this takes a system compiler. A machine without one gets
"sanitizers not run: ..." and success, unless KVASSAY_REQUIRE_SANITIZERS=1 makes that a failure.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "build"))

import recipe
from programs import NOT_RUN, programs
from zig import object_of

SANITIZERS = (
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-O1",
    "-g",
    "-Wno-maybe-uninitialized",  # gcc sees ghosts in code that carries sanitizer checks
)
# These belong to zig or to the shared library. New compilers bring new warnings: no -Werror.
_NOT_HERE = {"-O2", "-g0", "-fno-sanitize=undefined", "-fvisibility=hidden", "-Werror"}
FLAGS = (*(flag for flag in recipe.C_FLAGS if flag not in _NOT_HERE), *SANITIZERS)
COMPILERS = ("clang", "gcc", "cc")


def find_compiler(scratch: Path) -> tuple[str | None, str]:
    """The first system compiler whose sanitized programs run, or None and the reason."""
    probe = scratch / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    present = [name for name in COMPILERS if shutil.which(name)]
    for name in present:
        program = scratch / "probe"
        made = subprocess.run(
            [name, *SANITIZERS, str(probe), "-o", str(program)], capture_output=True
        )
        if made.returncode == 0 and subprocess.run([str(program)]).returncode == 0:
            return name, ""
    if not present:
        return None, "no system compiler"
    return None, f"no sanitizer runtime with {', '.join(present)}"


def compile_objects(compiler: str, scratch: Path, more: tuple[str, ...] = ()) -> list[str]:
    """Compile the library's sources with sanitizers and `more` flags; the object files."""

    def compile_one(unit: recipe.Unit) -> str:
        made = object_of(unit, scratch)
        define = '-DKV_BUILD_ID="sanitized"'
        own = (*FLAGS, *more, *unit.flags, *recipe.INCLUDE, define)
        subprocess.run([compiler, *own, "-c", str(unit.path), "-o", str(made)], check=True)
        return str(made)

    units = recipe.sources(recipe.host_target().machine)
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(compile_one, units))


def run_tests(compiler: str, scratch: Path) -> tuple[int, int]:
    """Build and run each test program; how many failed and how many tested nothing."""
    tests = programs(recipe.host_target().machine)
    objects = compile_objects(compiler, scratch)
    failed = skipped = 0
    for test in tests:
        program = scratch / test.name
        own = (*FLAGS, *test.flags, *recipe.INCLUDE, str(test.source))
        subprocess.run([compiler, *own, *objects, "-o", str(program), "-lm"], check=True)
        status = subprocess.run([str(program)]).returncode
        said = {0: "ok", NOT_RUN: "not run"}.get(status, f"failed with status {status}")
        print(f"{test.name}: {said}", flush=True)
        failed += status not in (0, NOT_RUN)
        skipped += status == NOT_RUN
    good = len(tests) - failed - skipped
    print(f"sanitized C programs with {compiler}: {good} ok, {failed} not ok, {skipped} not run")
    return failed, skipped


def main() -> int:
    """Find a compiler and run; 0 when all programs pass."""
    required = os.environ.get("KVASSAY_REQUIRE_SANITIZERS") == "1"
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        compiler, reason = find_compiler(scratch)
        if compiler is None:
            print(f"sanitizers not run: {reason}")
            return int(required)
        try:
            failed, skipped = run_tests(compiler, scratch)
            # What is emulated exists for x86-64 alone; there it can always be run.
            complete = not skipped or platform.machine() != "x86_64" or not required
            return int(failed > 0 or not complete)
        except (recipe.BuildError, subprocess.CalledProcessError) as error:
            print(error, file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
