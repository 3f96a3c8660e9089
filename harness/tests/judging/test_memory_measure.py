"""What the memory suite measures with: fresh processes, tolerances, long caches, honest shadows."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from planted.wrapped import Unbroken, WrappedCache, native

from kvassay.protocol import FloatArray
from kvassay_suites.common.process import ChildError, call_fresh
from kvassay_suites.memory.load import Tokens, fill, long_cache, preset_spec
from kvassay_suites.memory.measure import growth as grown
from kvassay_suites.memory.measure import held, peak_shape
from kvassay_suites.memory.process import ENVIRONMENT, Probe, excess, growth, tolerance

SHAPE = {"layers": 1, "kv_heads": 1, "query_heads": 2, "head_dim": 64}


def chatty(number: int) -> dict[str, Any]:
    print("noise on standard output")
    return {"number": number, "pid": os.getpid(), "set": os.environ.get("PYTHONMALLOC", "")}


def holding(bytes_: int) -> list[dict[str, int]]:
    """What a probe shows of a buffer, and after it is gone."""
    probe = Probe(trace=True)
    buffer = np.ones(bytes_, np.uint8)
    during = probe.held()
    del buffer
    return [during, probe.held()]


def peaking(bytes_: int) -> dict[str, int | None]:
    """What a probe shows of a buffer that is gone before anyone looks."""
    probe = Probe(trace=True)
    return dict(vars(probe.peak_of(lambda: np.ones(bytes_, np.uint8).sum())))


def test_a_fresh_process_answers_whatever_it_prints() -> None:
    found = call_fresh("test_memory_measure:chatty", {"number": 7}, **ENVIRONMENT)
    assert found == {"number": 7, "pid": found["pid"], "set": "malloc"}
    assert found["pid"] != os.getpid()


def test_a_fresh_process_that_fails_says_why() -> None:
    with pytest.raises(ChildError, match="unexpected keyword argument 'nonsense'"):
        call_fresh("test_memory_measure:chatty", {"nonsense": 1})


def test_every_evidence_sees_a_buffer() -> None:
    during, after = call_fresh("test_memory_measure:holding", {"bytes_": 8 << 20}, **ENVIRONMENT)
    assert {"traced", "private"} <= set(during)
    for kind, bytes_ in during.items():
        assert abs(bytes_ - (8 << 20)) < tolerance(kind, 0)
        assert abs(after[kind]) < tolerance(kind, 0)


def test_peaks_see_what_is_gone() -> None:
    peak = call_fresh("test_memory_measure:peaking", {"bytes_": 8 << 20}, **ENVIRONMENT)
    assert {"traced", "traced_rise", "resident", "resident_rise"} == set(peak)
    for kind, bytes_ in peak.items():
        if bytes_ is not None:
            assert abs(bytes_ - (8 << 20)) < tolerance("private", 0), kind


def test_excess_is_what_no_tolerance_covers() -> None:
    billed = 10_000_000
    assert excess({"malloc": billed, "private": billed}, billed) == 0
    edge = billed + tolerance("malloc", billed)
    assert excess({"malloc": edge, "private": billed}, billed) == 0
    assert excess({"malloc": edge + 5, "private": billed}, billed) == 5
    assert growth({"malloc": 32 << 10, "private": 0}) == 0
    assert growth({"malloc": 33 << 10, "private": 0}) == 1 << 10


@pytest.mark.parametrize("preset", ["fp16", "turbo", "kivi"])
def test_a_long_cache_is_one_that_goes_on(preset: str) -> None:
    spec = preset_spec(preset, SHAPE)
    with long_cache(native(), spec, 5000) as cache:
        assert cache.lengths == (5000,)
        assert len(cache.pages(0)) == spec.layer(0).sealed(5000)
        fill(cache, Tokens.of(spec, 70), 70)
        assert np.isfinite(cache.attend(0, Tokens.of(spec, 1).q)).all()


class _Billed(WrappedCache):
    def start(self) -> None:
        self._copies: list[FloatArray] = []

    def append(self, layer: int, k: FloatArray, v: FloatArray) -> None:
        super().append(layer, k, v)
        if isinstance(k, np.ndarray):
            self._copies += [k.copy(), v.copy()]

    @property
    def nbytes(self) -> dict[str, int]:
        held_ = super().nbytes
        return {**held_, "codes": held_["codes"] + sum(copy.nbytes for copy in self._copies)}

    def close(self) -> None:
        self._copies = []
        super().close()


class BilledShadow(Unbroken):
    """A decoded copy, honestly billed: as codes."""

    cache = _Billed


def test_a_shadow_is_one_though_it_is_billed() -> None:
    arguments = {"layers": 2, "tokens": 512, "sessions": 5}
    found = {}
    for backend in ("test_memory_measure:BilledShadow", "planted.wrapped:Unbroken"):
        records = held(backend, "scalar", "turbo", **arguments)
        found[backend] = {record.check: record.value for record in records}
        assert all(record.comparisons > 1 for record in records)
    shadow, sound = found.values()
    assert sound == dict.fromkeys(sound, 0.0)
    assert shadow["memory.unbilled_bytes"] == 0
    assert shadow["memory.shadow_bytes"] > 2 * 512 * 4 * 128 * 2 * 4 / 2


def test_a_bill_that_is_half_of_what_is_touched_has_the_wrong_slope() -> None:
    found = {}
    for backend in ("planted.holding:BillsHalf", "planted.wrapped:Unbroken"):
        records = grown(backend, "scalar", ["fp16", "turbo"], [1024, 16384], append=False)
        found[backend] = {r.preset: r.value for r in records if r.check == "memory.rss_slope"}
        assert [r.subject for r in records if r.check == "memory.peak_ratio"] == [
            "16384 tokens held, one step"
        ]
        assert all(r.comparisons >= 2 for r in records)
    half, sound = found.values()
    assert set(sound) == {"fp16", "turbo"}
    assert max(sound.values()) < 0.05
    assert min(half.values()) > 0.5


def test_a_peak_is_as_large_as_a_backend_can_fill() -> None:
    small = peak_shape("planted.wrapped:Unbroken", "scalar", 1024, 2)
    assert small == {"kv_heads": 2, "query_heads": 4, "head_dim": 64, "layers": 4}
    large = peak_shape("planted.wrapped:Unbroken", "scalar", 65536, 256)
    assert large["kv_heads"] == 4
    assert large["layers"] == 2
