"""What a module writes outside of what it was given, in its own linear memory, ends its use."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pytest
from planted.hostile import INFO, make

from kvassay.backend.fences import fenced
from kvassay.protocol import Backend
from kvassay.spec import Spec
from kvassay_backends.wasm.faults import ModuleFault
from kvassay_backends.wasm.instance import Limits
from kvassay_backends.wasm.kernel_backend import open_backend
from kvassay_backends.wasm.module import Module

SPEC: Final = Spec(1, 1, 1, 64, keys="fp16", values="fp16", page_tokens=16)
ROWS: Final = np.ones((40, 1, 64), np.float32)
SMALL: Final = Limits(memory=16 << 20, fuel=20_000_000)

#: Modules that do what they must and nothing else: a whole cache, and kernels.
CACHE: Final = {"kv_cache_length": "i64.const 4"}
KERNELS: Final = {
    "kv_get_info": f"i32.const {INFO + 16} i32.const 1 i32.store i32.const {INFO}",
    "kv_plan_bytes": "local.get 1 i64.const 100 i64.store i32.const 0",
    "kv_plan_page_bytes": "i64.const 300",
    "kv_plan_scratch_bytes": "i64.const 77",
}


def _written(address: str) -> str:
    """A byte is made 1, which no sentinel is, and the call says that all is well."""
    return f"(i32.store8 {address} (i32.const 1)) i32.const 0"


def _at(argument: int, away: int) -> str:
    return f"(i32.add (local.get {argument}) (i32.const {away}))"


def _behind(pointer: int, size: int) -> str:
    return f"(i32.add (local.get {pointer}) (i32.wrap_i64 (local.get {size})))"


#: Which function writes where, and what is said of it: a query is 256 bytes, and so is its output.
CACHE_FAULTS: Final = {
    "behind out": ("attend", _at(4, 256), r"out \(256 bytes\): wrote 1 byte behind .* 1 away"),
    "far behind out": ("attend", _at(4, 355), r"out \(256 bytes\): wrote .* farthest 100 away"),
    "in front of out": ("attend", _at(4, -3), r"out \(256 bytes\): .* in front .* 3 away"),
    "query": ("attend", _at(2, 8), r"q \(256 bytes\): changed, though"),
    "error": ("attend", _at(5, 256), r"kv_error \(256 bytes\): wrote 1 byte behind"),
    "values": ("append", _at(3, 8), r"values \(10240 bytes\): changed, though"),
    "behind keys": ("append", _at(2, 10240), r"keys \(10240 bytes\): wrote 1 byte behind"),
}
KERNEL_FAULTS: Final = {
    "plan": ("kv_plan_init", _at(2, 100), r"the plan \(100 bytes\): wrote 1 byte behind"),
    "page": ("kv_page_encode", _behind(6, 7), r"the page \(300 bytes\): wrote 1 byte behind"),
    "scratch": ("kv_page_encode", _behind(8, 9), r"scratch \(77 bytes\): wrote 1 byte behind"),
    "kernel out": ("kv_attend", _at(4, 256), r"out \(256 bytes\): wrote 1 byte behind"),
    "read-only plan": ("kv_attend", _at(0, 99), r"the plan \(100 bytes\): changed, though"),
    "sealed page": ("kv_attend", "(i32.load (i32.load offset=8 (local.get 1)))", r"the page .*"),
}


def _backend(folder: Path, bodies: dict[str, str]) -> Backend:
    module = Module.open(make(folder, "writing", bodies), metered=True)
    return open_backend("mine", module, "hostile", SMALL)


def _use(backend: Backend) -> None:
    with backend.prepare(SPEC) as cache:
        cache.append(0, ROWS, ROWS)
        cache.attend(0, ROWS[0])


@pytest.mark.parametrize("name", CACHE_FAULTS)
def test_a_cache_that_writes_where_it_may_not(name: str, tmp_path: Path) -> None:
    function, address, said = CACHE_FAULTS[name]
    bodies = {**CACHE, f"kv_cache_{function}": _written(address)}
    _refused(tmp_path, bodies, f"kv_cache_{function}: {said}")


@pytest.mark.parametrize("name", KERNEL_FAULTS)
def test_kernels_that_write_where_they_may_not(name: str, tmp_path: Path) -> None:
    function, address, said = KERNEL_FAULTS[name]
    _refused(tmp_path, {**KERNELS, function: _written(address)}, f"{function}: {said}")


def _refused(folder: Path, bodies: dict[str, str], said: str) -> None:
    backend = _backend(folder, bodies)
    with fenced(), pytest.raises(ModuleFault, match=said) as caught:
        _use(backend)
    assert caught.value.kind == "fence"


@pytest.mark.parametrize("bodies", [CACHE, KERNELS], ids=["cache", "kernels"])
def test_the_same_modules_without_a_fault(bodies: dict[str, str], tmp_path: Path) -> None:
    backend = _backend(tmp_path, bodies)
    with fenced():
        _use(backend)
    _use(backend)
