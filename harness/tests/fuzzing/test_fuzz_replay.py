"""Saved inputs of the fuzzers again: no crash, no error but kvassay's own; sound ones accepted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from native_tools import BUILT, SOURCES, compile_c

from fuzzing import targets

C_CORPUS = SOURCES / "fuzz" / "corpus"
C_TARGETS = sorted(path.name for path in C_CORPUS.iterdir())


@pytest.mark.parametrize("name", sorted(targets.TARGETS))
def test_saved_inputs_of_the_python_readers(name: str) -> None:
    saved = sorted((targets.CORPUS / name).iterdir())
    assert len(saved) >= 10
    for path in saved:
        targets.run(name, path.read_bytes())
    sound = [targets.run(name, data) for data in targets.seeds(name)]
    assert any(sound)


@pytest.mark.parametrize("name", sorted(targets.TARGETS))
def test_damage_is_refused_by_the_python_readers(name: str) -> None:
    """Every byte of a sound input in turn, and every length: nothing but kvassay's own errors."""
    data = targets.seeds(name)[-1 if name in ("page", "dump") else 0]
    for at in range(0, len(data), max(1, len(data) // 150)):
        targets.run(name, data[:at])
        for value in (0, 255, data[at] ^ 1):
            targets.run(name, data[:at] + bytes([value]) + data[at + 1 :])


def build(name: str, folder: Path) -> Path:
    made = folder / name
    libraries = [str(BUILT), f"-Wl,-rpath,{BUILT.parent}"]
    sources = [str(SOURCES / "fuzz" / f"{part}.c") for part in (name, "replay")]
    compile_c(["-std=c11", "-O1", "-Wall", "-Wextra", *sources, *libraries, "-o", str(made)])
    return made


def test_every_c_target_has_inputs() -> None:
    assert C_TARGETS == ["attend", "cache", "dump", "encode", "page", "retrieval"]


@pytest.mark.parametrize("name", C_TARGETS)
def test_saved_inputs_of_the_c_library(name: str, tmp_path: Path) -> None:
    saved = sorted(map(str, (C_CORPUS / name).iterdir()))
    assert len(saved) >= 10
    done = subprocess.run(
        [str(build(name, tmp_path)), *saved], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(saved)} inputs\n"
