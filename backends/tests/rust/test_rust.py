"""The Rust backend: built where cargo is, honest where it is not, and usable without Python."""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_tools import add, make_queries, make_spec, make_tokens

import kvassay
from kvassay import Spec
from kvassay.errors import UnavailableError
from kvassay.protocol import Availability, FloatArray
from kvassay_backends import rust
from kvassay_backends.emulated.backend import EmulatedBackend
from kvassay_backends.emulated.link import Command, Link
from kvassay_backends.emulated.provider import EMULATOR, VARIANTS, foreign_variants
from kvassay_backends.native.abi import Library
from kvassay_backends.native.probe import exercise
from kvassay_backends.rust import RustBackendProvider, backend, build_info

RECIPE = build_info.RECIPE
HAS_CARGO = shutil.which("cargo") is not None
needs_cargo = pytest.mark.skipif(not HAS_CARGO, reason="cargo not found: nothing is built to test")
EXAMPLE_SPEC = {"layers": 2, "kv_heads": 2, "query_heads": 4, "head_dim": 64}
EXAMPLE_TOKENS = 300


def recipe() -> dict[str, Any]:
    return runpy.run_path(str(RECIPE))


def cargo(*arguments: str, flags: str = "", target: str = "") -> str:
    """Run cargo on the crates and return what it printed; it must succeed.

    Builds with other `flags` of rustc have a `target` folder of their own: each would otherwise
    undo the other's.
    """
    source = build_info.SOURCE_DIR
    environment = {**os.environ, "RUSTFLAGS": flags}
    command = ["cargo", arguments[0], "--offline", "--locked"]
    command += [
        "--manifest-path",
        str(source / "Cargo.toml"),
        "--target-dir",
        str(source / "target" / target),
    ]
    done = subprocess.run(
        [*command, *arguments[1:]], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@needs_cargo
def test_the_library_is_built_from_the_present_sources() -> None:
    assert build_info.not_built_reason() == ""
    record = build_info.build_record()
    assert record is not None
    assert Library(build_info.LIBRARY_DIR / record["library"]).build_id == record["build_id"]
    assert backend.variants()["scalar"] == Availability("ready")
    loaded = backend.load("scalar")
    assert (loaded.name, loaded.exact, backend.foreign) == ("rust", True, False)


@needs_cargo
def test_every_variant_is_listed_whatever_runs_here() -> None:
    states = backend.variants()
    assert set(states) == {"scalar", *(name for names in VARIANTS.values() for name in names)}
    assert not {name for name, state in states.items() if state.status == "broken"}
    for name in ("avx512", "avx512vnni"):
        if platform.machine() == "x86_64" and not states[name].runs:
            assert states[name].status == "unsupported-cpu"
            assert states[name].reason.endswith(rust.EMULATED_AVX512)


def server_recipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(RECIPE.parent)
    return importlib.import_module("rust_server")


def fake_rust(folder: Path, monkeypatch: pytest.MonkeyPatch, libraries: Path) -> None:
    """A rustc whose standard library for aarch64 is in `libraries`, and a cargo that fails."""
    folder.mkdir()
    scripts = {"rustc": f"echo {libraries}", "cargo": "echo 'error: a fault' >&2\nexit 101"}
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.delenv("RUSTC", raising=False)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="ARM is not foreign here")
def test_without_a_standard_library_of_arm_neon_is_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = server_recipe(monkeypatch)
    output = tmp_path / "out"
    output.mkdir()
    (output / recipe.SERVER).write_text("of an earlier build")
    fake_rust(tmp_path / "bin", monkeypatch, libraries=tmp_path)
    record = recipe.build(output)
    assert record["reason"] == "no aarch64 standard library for Rust"
    assert [path.name for path in output.iterdir()] == ["build.json"]
    monkeypatch.setattr(build_info, "SERVER_DIR", output)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    provider = RustBackendProvider("rust")
    state = provider.variants()["neon"]
    assert (state.status, state.runs) == ("not-built", False)
    assert state.reason.startswith("no aarch64 standard library for Rust; run: ")
    with pytest.raises(UnavailableError, match="no aarch64 standard library"):
        provider.load("neon")


def test_a_server_that_cargo_does_not_build_is_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = server_recipe(monkeypatch)
    (tmp_path / "libstd-0.rlib").touch()
    fake_rust(tmp_path / "bin", monkeypatch, libraries=tmp_path)
    assert recipe.build(tmp_path / "out")["reason"] == "cargo rustc failed: error: a fault"


def test_without_rustc_the_reason_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = server_recipe(monkeypatch)
    fake_rust(tmp_path / "bin", monkeypatch, libraries=tmp_path)
    monkeypatch.setenv("RUSTC", str(tmp_path / "none"))
    assert recipe.build(tmp_path / "out")["reason"] == f"{tmp_path / 'none'} not found"


NEON = foreign_variants(rust.SERVER).get("neon")
needs_neon = pytest.mark.skipif(
    NEON is None or NEON.status != "emulated", reason=f"rust:neon is not emulated here: {NEON}"
)


@needs_neon
@pytest.mark.parametrize("variant", VARIANTS["aarch64"])
def test_neon_has_the_bytes_and_bits_of_the_reference(variant: str) -> None:
    for keys, values in (
        ("turbo:3.5", "turbo:2.5"),
        ("turbo:2+qjl", "turbo:4"),
        ("kivi:3", "kivi:4"),
    ):
        spec = make_spec(layers=1, keys=keys, values=values, window=7, sinks=2)
        rows = make_tokens(spec, 90)
        seen = []
        for one in (backend.load(variant), kvassay.load("reference")):
            with one.prepare(spec) as cache:
                add(cache, rows)
                out = cache.attend(0, make_queries(spec, 3))
                scores = cache.scores(0, make_queries(spec, 1)[0])
                seen.append((cache.dump_bytes(), out.tobytes(), scores.tobytes()))
        assert seen[0] == seen[1], keys


@needs_neon
def test_a_cpu_without_the_dot_product() -> None:
    """Dispatch asks the processor: Cortex-A53 is ARMv8.0."""
    server = build_info.SERVER_DIR / "kvassay-serve-rust-aarch64"
    link = Link((EMULATOR, "-cpu", "cortex-a53", str(server)))
    try:
        for name in ("scalar", "neon"):
            link.call(Command.RUNS, count=link.variants.index(name))
            assert exercise(EmulatedBackend("old", link, name)) == ""
        with pytest.raises(UnavailableError, match="this CPU has no dot product"):
            EmulatedBackend("old", link, "neondot").prepare(make_spec())
    finally:
        link.close()


@needs_neon
def test_a_server_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_info, "_digest", lambda named: "another")
    state = RustBackendProvider("rust").variants()["neon"]
    assert (state.status, state.runs) == ("not-built", False)
    assert "built from other sources; run: python backends/build/rust_server.py" in state.reason


def test_without_cargo_it_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "libkvassay_rust.so").write_text("of an earlier build")
    record = recipe()["build"]("x86_64-linux-gnu.2.17", here=True, output=tmp_path)
    assert record["reason"] == "cargo not found"
    assert [path.name for path in tmp_path.iterdir()] == ["build.json"]
    monkeypatch.setattr(build_info, "LIBRARY_DIR", tmp_path)
    state = RustBackendProvider("rust").variants()["scalar"]
    assert (state.status, state.reason.partition(";")[0]) == ("not-built", "cargo not found")
    with pytest.raises(UnavailableError, match="cargo not found"):
        RustBackendProvider("rust").load("scalar")


def test_a_cargo_that_fails_fails_no_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "cargo"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'error: rustc 1.10 is too old' >&2\nexit 101\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent))
    record = recipe()["build"]("x86_64-linux-gnu.2.17", here=True, output=tmp_path / "out")
    assert record["reason"] == "cargo build failed: error: rustc 1.10 is too old"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["build.json"]


def test_another_machine_is_not_built_for(tmp_path: Path) -> None:
    record = recipe()["build"]("aarch64-macos.11.0", here=False, output=tmp_path)
    assert record["reason"] == "aarch64-macos.11.0 is another machine"


def test_a_library_of_other_sources_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = {"sources_digest": "0" * 64, "build_id": "1" * 64, "library": "libkvassay_rust.so"}
    (tmp_path / "build.json").write_text(json.dumps(record))
    monkeypatch.setattr(build_info, "LIBRARY_DIR", tmp_path)
    monkeypatch.setattr(rust, "LIBRARY_DIR", tmp_path)
    state = RustBackendProvider("rust").variants()["scalar"]
    assert state.status == "not-built"
    assert "other sources" in state.reason


def example_numbers(first: int, count: int) -> FloatArray:
    """What `number` of the example gives for `first` and on."""
    step = np.uint64(0x9E3779B97F4A7C15)
    mixed = (np.arange(count, dtype=np.uint64) + np.uint64(first + 1)) * step >> np.uint64(53)
    return ((mixed.astype(np.int64) - 1024) / 1024).astype(np.float32)


@needs_cargo
def test_python_restores_what_the_example_dumped(tmp_path: Path) -> None:
    """Another process, no Python in it: the same tokens give the reference's bytes and bits."""
    file = tmp_path / "cache.kvdump"
    said = cargo("run", "-q", "--example", "standalone", "--", str(file))
    spec: Spec = kvassay.preset("turbo", **EXAMPLE_SPEC)
    with kvassay.load("reference").prepare(spec) as expected:
        for layer in range(spec.layers):
            width = spec.kv_heads * spec.head_dim
            keys = example_numbers(layer * EXAMPLE_TOKENS * width, EXAMPLE_TOKENS * width)
            keys = keys.reshape(EXAMPLE_TOKENS, spec.kv_heads, spec.head_dim)
            expected.append(layer, keys, -keys)
        q = example_numbers(1 << 40, 4 * 64).reshape(4, 64)
        for name in ("reference", "native"):
            with kvassay.load(name).restore(spec, file) as restored:
                assert restored.lengths == (EXAMPLE_TOKENS, EXAMPLE_TOKENS)
                assert restored.dump_bytes() == expected.dump_bytes() == file.read_bytes()
                for layer in range(spec.layers):
                    out = restored.attend(layer, q)
                    bits = " ".join(f"{x:08x}" for x in out[0, :4].view(np.uint32))
                    assert f"layer {layer} attends {bits}" in said


@needs_cargo
@pytest.mark.long
def test_the_crates_own_tests_pass() -> None:
    passed = re.findall(
        r"test result: ok\. (\d+) passed; 0 failed; 0 ignored", said := cargo("test", "--workspace")
    )
    assert sum(map(int, passed)) >= 18, said


@needs_cargo
@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the base of AVX-512 is AVX2")
def test_the_logic_of_avx512_is_that_of_scalar() -> None:
    """Its kernels over intrinsics in plain Rust, and those against the instructions of AVX2."""
    said = cargo(
        "test", "-p", "kvassay-core", "--lib", "--test", "variants", "--", "--nocapture",
        flags="--cfg kvassay_emulate", target="emulated",
    )  # fmt: skip
    for name in ("avx2", "avx512", "avx512vnni"):
        assert f"{name}: all outputs have the bits of scalar" in said
    assert "as_the_instructions_of_256_bits ... ok" in said


@needs_cargo
@pytest.mark.long
def test_clippy_and_format_are_clean() -> None:
    if shutil.which("cargo-clippy") is None:
        pytest.skip("clippy is not installed")
    cargo("clippy", "--all-targets", "--", "-D", "warnings")


@needs_cargo
def test_unsafe_code_is_in_the_kernels_alone() -> None:
    core = build_info.SOURCE_DIR / "kvassay-core"
    assert "#![deny(unsafe_code)]" in (core / "src" / "lib.rs").read_text()
    allowing = {
        path.relative_to(core).parts[:2]
        for path in core.rglob("*.rs")
        if "allow(unsafe_code)" in path.read_text()
    }
    assert allowing == {("src", "kernels")}
