"""The suite wasm rejects what it is there to reject: planted faults, one a rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import library
import numpy as np
import pytest
import recipe

import kvassay
from kvassay.errors import CacheMemoryError
from kvassay.judging.rules import evaluate, rulebook
from kvassay.protocol import Cache
from kvassay.records import Record
from kvassay_backends.wasm import build_info
from kvassay_backends.wasm.backend import WasmBackend
from kvassay_backends.wasm.cache import WasmCache
from kvassay_backends.wasm.module import Module
from kvassay_suites.wasm import measure, suite


def own(variant: str = "simd128") -> WasmBackend:
    loaded = kvassay.load("wasm", variant)
    assert isinstance(loaded, WasmBackend)
    return loaded


@dataclass
class Wrapped:
    """A backend whose caches do something else as well; the rest goes through."""

    inner: Any
    leak: int = 0
    untold: bool = False
    drift: int = 0
    caches: list[Cache] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def in_one_memory(self, max_bytes: int | None = None, metered: bool = False) -> Wrapped:
        one = self.inner.in_one_memory(max_bytes, metered)
        return Wrapped(one, self.leak, self.untold, self.drift)

    def prepare(self, spec: kvassay.Spec, threads: int = 1) -> Any:
        if self.leak:
            self.inner.desk.take(self.leak)
        cache = self.inner.prepare(spec, threads)
        if self.drift:
            self.drift += 1
            cache.append(0, *np.zeros((2, self.drift, spec.kv_heads, spec.head_dim), np.float32))
        return Untold(cache) if self.untold else cache


class Untold:
    """A cache that forgets how much was asked and left."""

    def __init__(self, cache: WasmCache) -> None:
        self.inner = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __enter__(self) -> Untold:
        return self

    def __exit__(self, *exc: object) -> None:
        self.inner.close()

    def append(self, layer: int, k: Any, v: Any) -> None:
        try:
            self.inner.append(layer, k, v)
        except CacheMemoryError as error:
            raise CacheMemoryError(str(error)) from None


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a faulty backend where the suite loads one."""

    def planted(**faults: Any) -> None:
        monkeypatch.setattr(
            measure, "load_linear", lambda backend, variant: Wrapped(own(variant), **faults)
        )

    return planted


def state_of(rule: str, records: list[Record]) -> str:
    return evaluate(rulebook().rule(rule), records).state


def test_a_hundred_sessions_of_ours_grow_once() -> None:
    records = measure.sessions("wasm", "simd128", 100)
    assert state_of("wasm.growth_events", records) == "pass"
    assert records[0].comparisons == 99 * 3
    assert records[0].detail["growths_of_the_first"] >= 1


def test_a_leak_is_growth_that_repeats(plant: Any) -> None:
    """Ten kilobytes a cache: less than the arena grows by at once."""
    plant(leak=10_000)
    records = measure.sessions("wasm", "simd128", 100)
    assert state_of("wasm.growth_events", records) == "reject"


def test_growth_that_a_module_does_not_count_is_seen_by_the_pages(
    plant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(leak=100_000)
    real = WasmBackend.memory_use

    def silent(self: WasmBackend) -> Any:
        use = real.fget(self)  # type: ignore[attr-defined]
        return type(use)(use.pages, 0, use.used, use.high_water, use.cap)

    monkeypatch.setattr(WasmBackend, "memory_use", property(silent))
    assert state_of("wasm.growth_events", measure.sessions("wasm", "simd128", 30)) == "reject"


def test_a_cap_of_ours_is_survived_and_a_refusal_without_figures_is_a_fault(plant: Any) -> None:
    assert state_of("wasm.cap_faults", measure.cap("wasm", "simd128")) == "pass"
    plant(untold=True)
    records = measure.cap("wasm", "simd128")
    assert state_of("wasm.cap_faults", records) == "reject"
    assert records[0].detail["faults"] == ["asked None, left None"]


@pytest.mark.parametrize("variant", ["scalar", "simd128", "relaxed"])
def test_instructions_are_within_their_budgets(variant: str) -> None:
    records = measure.fuel("wasm", variant)
    assert len(records) == 5
    assert state_of("wasm.fuel", records) == "pass"
    assert state_of("wasm.fuel_unsteady", records) == "pass"
    shares = [record.value for record in records if record.check == "wasm.fuel"]
    assert min(shares) > 0.85, "a budget that has become too wide sees no regression"


def test_work_that_differs_between_runs_is_unsteady(plant: Any) -> None:
    plant(drift=1)
    real = measure.count
    counts: Iterator[int] = iter(range(2))

    def counted(loaded: Any, preset: str) -> dict[str, int]:
        loaded.drift += next(counts)
        return real(loaded, preset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "count", counted)
        assert state_of("wasm.fuel_unsteady", measure.fuel("wasm", "simd128")) == "reject"


def test_a_build_without_optimization_is_a_regression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way: another module, counted, against the budgets of rules.toml."""
    units = recipe.wasm_sources("scalar")
    slow = [replace(unit, flags=(*unit.flags, "-O0")) for unit in units]
    path = tmp_path / "slow.wasm"
    library.link_wasm(slow, "slow", path)
    backend = WasmBackend("wasm", Module.open(path), "scalar")
    monkeypatch.setattr(measure, "load_linear", lambda *_: backend)
    records = measure.fuel("wasm", "scalar")
    assert state_of("wasm.fuel", records) == "reject"


def test_an_operation_without_a_budget_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "count", lambda loaded, preset: {"something new": 1})
    assert state_of("wasm.fuel", measure.fuel("wasm", "simd128")) == "reject"


def test_targets_without_linear_memory_are_named_and_nothing_else() -> None:
    request = kvassay.suite.Request((kvassay.suite.Target("native", "scalar"),), ("turbo",))
    (task,) = suite.tasks(request)
    (record,) = task.run()
    assert (record.check, record.value) == ("run.linear_memory", 0.0)


def test_the_record_of_the_build_names_every_module() -> None:
    record = build_info.build_record()
    assert record is not None
    assert set(record["modules"]) == {"scalar", "simd128", "relaxed"}
