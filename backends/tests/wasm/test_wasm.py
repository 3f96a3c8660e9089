"""The wasm backend: equal bits, memory that is checked, memory that has a cap."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvassay
from kvassay.errors import CacheMemoryError, NonFiniteError, StateError, UnavailableError
from kvassay.protocol import Cache
from kvassay_backends.wasm import WasmBackendProvider, build_info, features, module
from kvassay_backends.wasm.backend import WasmBackend
from kvassay_backends.wasm.faults import ModuleFault, StaleHandleError
from kvassay_backends.wasm.instance import Instance, Limits
from kvassay_backends.wasm.layout import layout, signatures
from kvassay_backends.wasm.module import Module

VARIANTS = ("scalar", "simd128", "relaxed")
SPEC = kvassay.Spec(
    2, 2, 4, 64, keys="turbo:3.5", values="turbo:3", page_tokens=16, window=16, sinks=2
)
RNG = np.random.default_rng(7)
K, V = RNG.standard_normal((2, 300, 2, 64), np.float32)
Q = RNG.standard_normal((3, 4, 64), np.float32)


@pytest.fixture(params=VARIANTS)
def backend(request: pytest.FixtureRequest) -> WasmBackend:
    loaded = kvassay.load("wasm", request.param)
    assert isinstance(loaded, WasmBackend)
    return loaded


def fill(cache: Cache, tokens: int = 100) -> None:
    for layer in range(cache.spec.layers):
        cache.append(layer, K[:tokens], V[:tokens])


def state(cache: Cache) -> tuple[bytes, bytes, bytes]:
    return cache.dump(), cache.attend(1, Q).tobytes(), cache.scores(0, Q[0]).tobytes()


def test_every_variant_is_built_and_runs() -> None:
    states = WasmBackendProvider("wasm").variants()
    assert list(states) == list(reversed(VARIANTS))  # the fastest first
    assert {name: found.status for name, found in states.items()} == dict.fromkeys(
        VARIANTS, "ready"
    )


def test_bits_are_those_of_native(backend: WasmBackend) -> None:
    with backend.prepare(SPEC) as ours, kvassay.load("native").prepare(SPEC) as theirs:
        fill(ours)
        fill(theirs)
        assert state(ours) == state(theirs)
        assert ours.counters.variants_ran == (backend.variant,)
        with backend.restore(SPEC, theirs.dump()) as restored:
            assert state(restored) == state(theirs)


def test_a_long_append_in_parts_leaves_what_one_leaves(backend: WasmBackend) -> None:
    """What is staged at once is a few hundred tokens here."""
    k, v = (np.tile(x, (4, 1, 1)) for x in (K, V))
    with backend.prepare(SPEC) as long, backend.prepare(SPEC) as short:
        for layer in range(SPEC.layers):
            long.append(layer, k, v)
            for start in range(0, len(k), 100):
                short.append(layer, k[start : start + 100], v[start : start + 100])
        assert state(long) == state(short)
        before = long.dump()
        bad = k.copy()
        bad[-1, 0, 0] = np.nan
        with pytest.raises(NonFiniteError):
            long.append(0, bad, v)
        assert long.dump() == before


def test_forks_share_a_memory_and_outlive_their_parent(backend: WasmBackend) -> None:
    parent = backend.prepare(SPEC)
    fill(parent)
    before = state(parent)
    fork = parent.fork()
    fork.append(0, K[:5], V[:5])
    assert state(parent) == before
    parent.close()
    fork.truncate(100)
    assert state(fork) == before
    fork.close()
    with pytest.raises(StateError):
        fork.attend(0, Q)


def test_threads_are_accepted_and_change_nothing(backend: WasmBackend) -> None:
    with backend.prepare(SPEC, threads=8) as many, backend.prepare(SPEC) as one:
        fill(many)
        fill(one)
        assert state(many) == state(one)


def test_caches_of_one_memory_in_two_threads(backend: WasmBackend) -> None:
    """Calls of an instance wait for each other."""
    one = backend.in_one_memory()
    caches = [one.prepare(SPEC) for _ in range(2)]
    workers = [threading.Thread(target=fill, args=(cache, 300)) for cache in caches]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert state(caches[0]) == state(caches[1])


def test_the_bill_covers_the_linear_memory(backend: WasmBackend) -> None:
    with backend.prepare(SPEC) as cache:
        fill(cache)
        use = backend.in_one_memory().memory_use
        assert sum(cache.nbytes.values()) >= use.pages * 65536


def test_a_cap_that_is_reached_is_survived(backend: WasmBackend) -> None:
    one = backend.in_one_memory(2 << 20)
    spec = kvassay.Spec(1, 2, 4, 64, keys="fp16", values="fp16", page_tokens=16)
    with one.prepare(spec) as cache:
        error, length = fill_up(cache), cache.length
        assert error.asked is not None
        assert error.left is not None
        assert str(error.asked) in str(error)
        assert str(error.left) in str(error)
        assert error.left < error.asked
        before = state_of_one(cache)
        with pytest.raises(CacheMemoryError):
            cache.append(0, np.tile(K, (20, 1, 1)), np.tile(V, (20, 1, 1)))
        assert (cache.length, state_of_one(cache)) == (length, before)
        cache.truncate(160)
        cache.append(0, K[:16], V[:16])  # and goes on
        assert one.memory_use.pages * 65536 <= 2 << 20


def fill_up(cache: Cache) -> CacheMemoryError:
    for _ in range(100):
        try:
            cache.append(0, K, V)
        except CacheMemoryError as error:
            return error
    raise AssertionError("no cap was reached")


def state_of_one(cache: Cache) -> bytes:
    return cache.attend(0, Q).tobytes()


def test_memory_grows_in_steps_and_counts_them(backend: WasmBackend) -> None:
    one = backend.in_one_memory()
    assert one.memory_use.growths == 0
    with one.prepare(SPEC) as cache:
        fill(cache)
        used = one.memory_use
        assert used.growths == 1
        assert 0 < used.used <= used.high_water <= used.pages * 65536
    closed = one.memory_use
    assert closed.pages == used.pages  # linear memory never shrinks
    assert closed.used < used.used
    assert closed.high_water == used.high_water


@pytest.fixture
def instance() -> Instance:
    record = build_info.build_record()
    assert record is not None
    return Instance(Module.open(build_info.LIBRARY_DIR / record["modules"]["scalar"]["file"]))


def test_a_handle_is_stale_once_the_memory_has_grown(instance: Instance) -> None:
    address = instance.take(64)
    instance.memory.write(address, bytes(range(64)))
    handle = instance.memory.handle(address, 64)
    assert handle.read() == bytes(range(64))
    instance.take(4 << 20)
    with pytest.raises(StaleHandleError, match="take it again"):
        handle.read()
    assert instance.memory.handle(address, 64).read() == bytes(range(64))


def test_a_growth_by_nothing_makes_handles_stale_too(instance: Instance) -> None:
    handle = instance.memory.handle(instance.take(64), 64)
    instance.memory.grow(0)
    with pytest.raises(StaleHandleError):
        handle.read()


@pytest.mark.parametrize("place", ["read", "write", "handle"])
def test_every_address_is_checked_on_this_side(instance: Instance, place: str) -> None:
    memory = instance.memory
    calls: dict[str, Callable[[int, int], Any]] = {
        "read": memory.read,
        "write": lambda offset, size: memory.write(offset, bytes(size)),
        "handle": memory.handle,
    }
    for offset, size in ((memory.size, 1), (memory.size - 1, 2), (1 << 40, 1), (-1, 1)):
        with pytest.raises(ModuleFault, match="outside of linear memory"):
            calls[place](offset, size)
    calls[place](memory.size - 1, 1)


def test_the_arena_joins_what_comes_back(instance: Instance) -> None:
    """Blocks of many sizes, returned in another order, leave room for one as large as all."""
    sizes = [int(size) for size in RNG.integers(1, 200_000, 60)]
    blocks = [(instance.take(size), size) for size in sizes]
    assert all(address % 64 == 0 for address, _ in blocks)
    before = instance.use
    for address, size in sorted(blocks, key=lambda block: block[0] * 7919 % 104729):
        instance.give_back(address, size)
    whole = instance.take(sum(sizes))
    assert instance.use.growths == before.growths
    instance.give_back(whole, sum(sizes))
    assert instance.use.used < before.used


def test_blocks_do_not_overlap(instance: Instance) -> None:
    held: dict[int, int] = {}
    for _ in range(400):
        if held and RNG.random() < 0.45:
            address = list(held)[int(RNG.integers(len(held)))]
            size = held.pop(address)
            assert instance.memory.read(address, size) == bytes([address // 64 % 251]) * size
            instance.give_back(address, size)
        else:
            size = int(RNG.integers(1, 5000))
            address = instance.take(size)
            instance.memory.write(address, bytes([address // 64 % 251]) * size)
            held[address] = size


def test_more_than_an_address_can_hold_is_refused(instance: Instance) -> None:
    with pytest.raises(CacheMemoryError, match="asked for 4294967296 bytes"):
        instance.take(1 << 32)
    with pytest.raises(CacheMemoryError, match="asked for 4000000000 bytes"):
        instance.take(4_000_000_000)
    with instance.room(1024) as address:  # and it goes on
        assert address


def test_the_cap_of_the_host_is_the_cap_of_the_module() -> None:
    record = build_info.build_record()
    assert record is not None
    path = build_info.LIBRARY_DIR / record["modules"]["scalar"]["file"]
    capped = Instance(Module.open(path), Limits(memory=1 << 20))
    with pytest.raises(CacheMemoryError) as caught:
        capped.take(1 << 20)
    assert caught.value.asked == 1 << 20
    assert 0 < (caught.value.left or 0) < 1 << 20
    capped.take((caught.value.left or 0) // 2)


def test_probes_fail_where_the_feature_is_off() -> None:
    """The very texts of the probes, on an engine without the features."""
    import wasmtime

    config = wasmtime.Config()
    config.wasm_relaxed_simd = False
    config.wasm_simd = False
    engine = wasmtime.Engine(config)
    for text in features.PROBES.values():
        wasm = wasmtime.wat2wasm(text)
        with pytest.raises(wasmtime.WasmtimeError):
            wasmtime.Module.validate(engine, wasm)
    assert [features.lacks(name) for name in VARIANTS] == ["", "", ""]


def test_an_engine_without_a_feature_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "missing", lambda feature: feature == "relaxed")
    provider = WasmBackendProvider("wasm")
    states = provider.variants()
    assert states["relaxed"].status == "unsupported-cpu"
    assert "no relaxed instructions" in states["relaxed"].reason
    assert states["simd128"].runs
    with pytest.raises(UnavailableError, match="no relaxed instructions"):
        provider.load("relaxed")


def test_without_the_package_the_reason_tells_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        module, "find_spec", lambda name: None if name == "wasmtime" else real(name)
    )
    states = WasmBackendProvider("wasm").variants()
    assert [(s.status, s.reason) for s in states.values()] == [
        ("missing-package", "wasmtime; pip install 'kvassay[wasm]'")
    ]


def test_a_module_that_is_not_the_one_that_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvassay_backends.wasm import provider as providers

    for path in build_info.LIBRARY_DIR.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(providers, "LIBRARY_DIR", tmp_path)
    with (tmp_path / "kvassay-simd128.wasm").open("ab") as stream:
        stream.write(b"\0\x05\x04more")  # a custom section: a sound module, but another one
    state = WasmBackendProvider("wasm").variants()["simd128"]
    assert state.status == "broken"
    assert "but build.json says" in state.reason


def test_evidence_names_the_module(backend: WasmBackend) -> None:
    record = build_info.build_record()
    assert record is not None
    built = record["modules"][backend.variant]
    assert backend.evidence["module"] == built["file"]
    assert backend.evidence["sha256"] == built["sha256"]
    assert backend.evidence["engine"].startswith("wasmtime ")
    assert backend.build_id == record["build_id"]


def test_layouts_are_those_of_wasm32() -> None:
    sizes = {"kv_error": 256, "kv_info": 32, "kv_layer_spec": 40, "kv_cache_config": 64}
    assert {name: layout(name).size for name in sizes} == sizes
    assert layout("kv_stats").size == 120
    assert signatures()["kv_cache_append"] == (("i32", "i32", "i32", "i32", "i64", "i32"), ("i32",))
