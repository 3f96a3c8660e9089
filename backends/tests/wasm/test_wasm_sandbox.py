"""Modules that are not trusted: whatever they do, they are refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted.hostile import FAULTS, HONEST, INFO, make

from kvassay.cli import run
from kvassay.errors import UnavailableError
from kvassay.spec import Spec
from kvassay_backends.wasm import build_info, open_module
from kvassay_backends.wasm.backend import WasmBackend
from kvassay_backends.wasm.faults import ModuleFault
from kvassay_backends.wasm.instance import Instance, Limits
from kvassay_backends.wasm.module import Module

SPEC = Spec(1, 1, 1, 64, keys="fp16", values="fp16", page_tokens=16)
ROWS = np.ones((4, 1, 64), np.float32)
SMALL = Limits(memory=16 << 20, fuel=20_000_000)


def backend_of(path: Path) -> WasmBackend:
    return WasmBackend("mine", Module.open(path, metered=True), "hostile", SMALL)


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("trap", "trap", "kv_cache_append: wasm trap: wasm `unreachable` instruction executed"),
        ("loop", "fuel", "kv_cache_append: did not end within 20,000,000 instructions"),
        ("growth", "growth", "after linear memory had grown to"),
    ],
)
def test_what_a_call_does_ends_the_instance(
    tmp_path: Path, name: str, kind: str, reason: str
) -> None:
    cache = backend_of(make(tmp_path, name)).prepare(SPEC)
    with pytest.raises(ModuleFault, match=reason) as caught:
        cache.append(0, ROWS, ROWS)
    assert caught.value.kind == kind
    with pytest.raises(ModuleFault, match=reason):  # the state is unknown from then on
        cache.reset()
    cache.close()


def test_a_lying_allocator_is_caught_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ModuleFault, match="outside of linear memory") as caught:
        backend_of(make(tmp_path, "lying allocator"))
    assert caught.value.kind == "bounds"


def test_an_info_outside_of_memory(tmp_path: Path) -> None:
    with pytest.raises(ModuleFault, match="outside of linear memory"):
        backend_of(make(tmp_path, "lying info"))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        (0, 7, "abi_version is 7, this kvassay needs 1"),
        (8, 1, "page_version is 1, this kvassay needs 2"),
        (16, 2, "promises neither bits"),  # the flag of a whole cache alone
        (16, 10, "promises neither bits"),  # a bound, and no function that says which
    ],
)
def test_another_version_and_no_promise_are_refused(
    tmp_path: Path, field: int, value: int, said: str
) -> None:
    body = f"i32.const {INFO + field} i32.const {value} i32.store i32.const {INFO}"
    with pytest.raises(UnavailableError, match=said):
        backend_of(make(tmp_path, "other", {"kv_get_info": body}))


def test_sizes_that_cannot_be_are_never_allocated_here(tmp_path: Path) -> None:
    with (
        backend_of(make(tmp_path, "lying dump")).prepare(SPEC) as cache,
        pytest.raises(MemoryError, match="18446744073709551615 bytes"),
    ):
        cache.dump()
    long = backend_of(make(tmp_path, "lying length")).prepare(SPEC)
    with pytest.raises(MemoryError, match="staging of"):
        long.scores(0, ROWS[0])


def test_pages_beyond_memory(tmp_path: Path) -> None:
    bodies = {
        "kv_cache_page_count": "i32.const -1",
        "kv_cache_page": """local.get 3 i32.const 0 i32.store
            local.get 4 i64.const 70000 i64.store i32.const 0""",
    }
    cache = backend_of(make(tmp_path, "endless pages", bodies)).prepare(SPEC)
    with pytest.raises(ModuleFault, match="more than linear memory has"):
        cache.pages(0)


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ('(import "env" "now" (func (result i32)))', "imports env.now"),
        ('(import "wasi_snapshot_preview1" "fd_write" (func))', "imports wasi_snapshot_preview1"),
    ],
)
def test_imports_are_refused(tmp_path: Path, extra: str, reason: str) -> None:
    with pytest.raises(ModuleFault, match=reason) as caught:
        Module.open(make(tmp_path, "importing", HONEST, extra))
    assert caught.value.kind == "import"


def test_missing_and_mistyped_exports_are_named(tmp_path: Path) -> None:
    import wasmtime

    path = tmp_path / "empty.wasm"
    path.write_bytes(wasmtime.wat2wasm('(module (memory (export "memory") 1))'))
    with pytest.raises(ModuleFault, match="export kv_get_info is missing"):
        Module.open(path)
    path.write_bytes(
        wasmtime.wat2wasm(
            '(module (memory (export "memory") 1)'
            ' (func (export "kv_get_info") (result i64) i64.const 0))'
        )
    )
    with pytest.raises(ModuleFault, match="kv_get_info has type"):
        Module.open(path)
    path.write_bytes(b"\0asm, but no module")
    with pytest.raises(UnavailableError, match=r"empty\.wasm: not a module wasmtime runs"):
        Module.open(path)


def test_a_start_function_that_never_ends(tmp_path: Path) -> None:
    extra = "(func $forever (loop $again (br $again))) (start $forever)"
    with pytest.raises(ModuleFault, match="instantiation: did not end"):
        backend_of(make(tmp_path, "starting", HONEST, extra))


def test_more_memory_than_the_cap_from_the_start(tmp_path: Path) -> None:
    path = make(tmp_path, "trap")
    with pytest.raises(ModuleFault, match="instantiation"):
        Instance(Module.open(path), Limits(memory=65536))


@pytest.mark.parametrize("name", ["slow growth", "loop"])
def test_the_trial_obeys_the_timeout(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVASSAY_PROBED", "{}")
    path = make(tmp_path, name)
    status = run(["gate", "--wasm", str(path), "--timeout", "1", "--records", str(tmp_path / "r")])
    said = " ".join(capsys.readouterr().out.split())
    assert status == 1
    assert "ModuleFault: kv_cache_append: did not end within 1 s" in said


@pytest.mark.parametrize("name", ["trap", "growth"])
def test_the_gate_rejects_it_with_the_reason(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, records = make(tmp_path, name), tmp_path / "results.jsonl"
    report = tmp_path / "report.html"
    status = run(["gate", "--wasm", str(path), "--records", str(records), "--report", str(report)])
    said = capsys.readouterr().out
    assert status == 1
    assert "REJECT" in said
    assert f"rejected: wasm:{path} hostile: ModuleFault: kv_cache_append" in said
    errors = [
        line
        for line in map(json.loads, records.read_text().splitlines())
        if line["check"] == "run.errors"
    ]
    assert "ModuleFault" in errors[0]["detail"]["error"]


def test_the_modules_of_this_project_pass_the_trial() -> None:
    record = build_info.build_record()
    assert record is not None
    for variant, built in record["modules"].items():
        states: dict[str, Any] = dict(
            open_module(str(build_info.LIBRARY_DIR / built["file"])).variants()
        )
        assert {name: state.status for name, state in states.items()} == {variant: "ready"}


def test_every_fault_is_tried() -> None:
    assert set(FAULTS) == {
        *("trap", "loop", "growth", "slow growth"),
        *("lying allocator", "lying info", "lying dump", "lying length"),
    }
