"""The build recipe of the native library: flags, identity, staleness, refusals."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import recipe

from kvassay_backends.native import build_info
from kvassay_backends.native.abi import Library

BACKENDS = Path(__file__).resolve().parents[3] / "backends"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the build recipe with one small C file in place of the real sources."""
    backends = tmp_path / "backends"
    native = backends / "kvassay_backends" / "native"
    native.mkdir(parents=True)
    shutil.copy(BACKENDS / "hatch_build.py", backends)
    shutil.copytree(BACKENDS / "build", backends / "build")
    for file in ("native/build_info.py", "native/isas.py", "rust/build_info.py"):
        copy = native.parent / file
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(BACKENDS / "kvassay_backends" / file, copy)
    for folder in ("include", "core/base", "kernels/one"):
        (backends / "src" / folder).mkdir(parents=True)
    for header in (BACKENDS / "src" / "include").glob("*.h"):
        shutil.copy(header, backends / "src" / "include")
    (backends / "src" / "core" / "base" / "one.c").write_text("extern int one;\nint one = 1;\n")
    return backends


def recompile(backends: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(backends / "hatch_build.py")]
    return subprocess.run(command, capture_output=True, text=True)


def info_of(backends: Path) -> dict[str, Any]:
    return runpy.run_path(str(backends / "kvassay_backends" / "native" / "build_info.py"))


def test_the_library_is_built_from_the_present_sources() -> None:
    assert build_info.stale_reason() is None


def test_the_library_carries_the_id_of_its_record() -> None:
    record = build_info.build_record()
    assert record is not None
    library = Library(build_info.LIBRARY_DIR / record["library"])
    assert library.build_id == record["build_id"]


def test_no_flag_breaks_the_numeric_contract() -> None:
    record = build_info.build_record()
    assert record is not None
    flags = {*record["flags"], *(flag for own in record["files"].values() for flag in own)}
    assert "-ffp-contract=off" in flags
    assert flags & {"-ffast-math", "-Ofast", "-march=native", "-ffp-contract=fast"} == set()


def test_a_build_is_fresh_until_a_source_changes(checkout: Path) -> None:
    assert "not built" in info_of(checkout)["stale_reason"]()
    built = recompile(checkout)
    assert built.returncode == 0, built.stderr
    info = info_of(checkout)
    assert info["stale_reason"]() is None
    assert info["build_record"]()["build_id"] in built.stdout
    source = checkout / "src" / "core" / "base" / "one.c"
    source.write_text(source.read_text().replace("one = 1", "one = 2"))
    assert "built from other sources" in info_of(checkout)["stale_reason"]()


def test_the_digest_covers_names_and_recipe(checkout: Path) -> None:
    digest = info_of(checkout)["source_digest"]
    before = digest()
    source = checkout / "src" / "core" / "base" / "one.c"
    source.rename(source.with_name("two.c"))
    renamed = digest()
    flags = checkout / "build" / "recipe.py"
    flags.write_text(flags.read_text().replace("-fno-fast-math", "-ffast-math"))
    fast = digest()
    isas = checkout / "kvassay_backends" / "native" / "isas.py"
    isas.write_text(isas.read_text().replace("-mno-fma", "-mfma"))
    assert len({before, renamed, fast, digest()}) == 4


def test_without_sources_there_is_nothing_to_compare(checkout: Path) -> None:
    shutil.rmtree(checkout / "src")
    info = info_of(checkout)
    assert info["source_digest"]() is None
    assert info["stale_reason"]() is None
    assert info["build_record"]() is None


def test_a_compile_error_is_shown_and_leaves_no_library(checkout: Path) -> None:
    (checkout / "src" / "core" / "base" / "one.c").write_text("int one = ;\n")
    built = recompile(checkout)
    assert built.returncode == 1
    assert "one.c:1:11: error: expected expression" in built.stderr
    assert list((checkout / "kvassay_backends" / "native" / "_lib").iterdir()) == []


def test_an_unknown_instruction_set_is_refused(checkout: Path) -> None:
    (checkout / "src" / "kernels" / "one" / "mmx.c").write_text("int mmx;\n")
    built = recompile(checkout)
    assert built.returncode == 1
    assert "mmx is no instruction set of ISAS" in built.stderr


def test_no_sources_is_an_error(checkout: Path) -> None:
    (checkout / "src" / "core" / "base" / "one.c").unlink()
    built = recompile(checkout)
    assert built.returncode == 1
    assert "no C sources" in built.stderr


def compiled(machine: str, isa: str) -> dict[str, str]:
    """By folder and rest of the name ("encode_kivi"), the file that an instruction set takes."""
    return {
        path.parent.name + path.stem.removeprefix(recipe.isa_of(path)): path.stem
        for path in recipe.kernel_files(machine, isa)
    }


def test_a_derived_instruction_set_takes_the_files_of_its_nearest_parent() -> None:
    own = compiled("x86_64", "avx512vnni")
    assert (own["keyscan"], own["valuesum"]) == ("avx512", "avx512")
    assert (own["transform"], own["encode_kivi"]) == ("avx2", "avx2_kivi")
    assert compiled("aarch64", "neondot")["crc32"] == "neondot"
    assert compiled("aarch64", "neondot")["keyscan"] == "neon"
    for machine, isas in recipe.ISAS.items():
        kinds = {isa: set(compiled(machine, isa)) for isa in isas}
        for isa in isas:  # no kernel of a parent is left out
            assert all(kinds[isa] >= kinds[parent] for parent in isas[isa].parents), isa


def test_every_kernel_file_is_compiled_for_some_instruction_set() -> None:
    there = set((BACKENDS / "src" / "kernels").glob("*/*.c"))
    taken = {
        path
        for machine, isas in recipe.ISAS.items()
        for isa in isas
        for path in recipe.kernel_files(machine, isa)
    }
    assert taken == there


def test_the_flags_of_an_instruction_set_reach_the_files_of_its_parents() -> None:
    record = build_info.build_record()
    assert record is not None
    if record["target"].startswith("x86_64"):
        flags = record["files"]["kernels/keyscan/avx512.c for avx512vnni"]
        assert {"-mavx512vnni", "-DKV_ISA=avx512vnni"} <= {*flags}
        assert "-mavx512vnni" not in record["files"]["kernels/keyscan/avx512.c"]
