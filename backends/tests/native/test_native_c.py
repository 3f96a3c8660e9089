"""C test programs of cache and stored vectors on the built library: what they use is exported."""

import subprocess
from pathlib import Path

import pytest
from native_tools import BUILT, SOURCES, compile_c

PROGRAMS = [*sorted((SOURCES / "tests").glob("cache_*.c")), SOURCES / "tests" / "retrieval.c"]
FLAGS = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]


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
