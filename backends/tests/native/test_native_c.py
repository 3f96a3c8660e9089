"""C test programs of cache and stored vectors on the built library: what they use is exported."""

import subprocess
from pathlib import Path

import pytest
from native_tools import BUILT, SOURCES, compile_c

PROGRAMS = [*sorted((SOURCES / "tests").glob("cache_*.c")), SOURCES / "tests" / "retrieval.c"]
FLAGS = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-DKV_BUILT"]


def run(source: Path, folder: Path) -> None:
    program = folder / source.stem
    libraries = [str(BUILT), f"-Wl,-rpath,{BUILT.parent}", "-ldl"]
    compile_c([*FLAGS, str(source), *libraries, "-o", str(program)])
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_there_are_programs() -> None:
    assert len(PROGRAMS) >= 5


@pytest.mark.parametrize("source", PROGRAMS, ids=lambda path: path.stem)
def test_c_program(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path)


#: A library of one variant that runs, whose kernels are never called, and one that does not run.
NEVER = """#include "kernels_support.h"
static const char *nothing(void) { return 0; }
static const char *everything(void) { return "everything"; }
const kv_variant kv_variants[KV_VARIANTS] = {
    {"scalar", nothing, 0}, [1 ... KV_VARIANTS - 1] = {"other", everything, 0}};
static void test(void) { CHECK(1); %s }
int main(void) { return for_each_variant("never", FIRST, test); }
"""


def never(folder: Path, body: str, first: int, required: str = "") -> tuple[int, str]:
    source, program = folder / "never.c", folder / "never"
    source.write_text(NEVER.replace("%s", body))
    tests = f"-I{SOURCES / 'tests'}"
    compile_c([*FLAGS, tests, f"-DFIRST={first}", str(source), "-o", str(program)])
    environment = {"KVASSAY_REQUIRE_VARIANTS": required}
    done = subprocess.run([str(program)], capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout + done.stderr


def test_a_variant_that_a_test_of_kernels_never_ran_is_a_failure(tmp_path: Path) -> None:
    assert never(tmp_path, "CHECK(is_forced(1));", 0)[0] == 0
    status, said = never(tmp_path, "", 0)
    assert status != 0
    assert "forced.runs > 0 does not hold" in said
    status, said = never(tmp_path, "CHECK(is_forced(2));", 0)
    assert status != 0
    assert "is_forced(2) does not hold" in said


def test_a_test_of_kernels_that_compares_nothing_is_no_pass(tmp_path: Path) -> None:
    status, said = never(tmp_path, "", 1)
    assert status == 77
    assert "scalar is the only variant that runs here" in said
    assert never(tmp_path, "CHECK(is_forced(1));", 0, required="other")[0] == 1
