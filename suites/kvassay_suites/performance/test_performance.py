"""The suite's arithmetic on clocks and series that are given, and its tasks at their smallest.

Nothing here asserts a time: machines differ, and a test must not depend on what else runs.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import pytest

import kvassay
from kvassay.judging.rules import rulebook
from kvassay.judging.tracks import tracks
from kvassay.page.layout import PageLayout
from kvassay.records import Record
from kvassay.running.machine import caches
from kvassay.suite import Request, Target, in_scope

from . import EFFORTS, ceilings, fresh, holding, instructions, steps, suite
from .ceilings import Ceilings
from .economy import Economy, predict
from .roofline import Place
from .turns import CALIBRATION, Series, evidence, take_turns
from .work import Owner, Shape, calibrate, checksum, filled, tokens_of

SMALL = Shape(1, 2, 64)
OWNER = Owner("native", "scalar", 1040, Shape(2, 8, 128), "abc")
TARGET = Target("native", "scalar")
ROOFS = Ceilings(bandwidth=1e10, operations=1e11, calibration=3e4)


class Clock:
    """Advances by what the calls say that they take, in nanoseconds."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def spend(self, nanoseconds: int) -> Any:
        def work() -> None:
            self.now += nanoseconds

        return work


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that the fixed loop advances too."""
    found = Clock()
    monkeypatch.setattr("kvassay_suites.performance.turns.calibrate", found.spend(30_000))
    return found


def test_samples_repeat_short_calls_and_give_the_mean_of_one(clock: Clock) -> None:
    calls: list[str] = []

    def count() -> None:
        calls.append("short")
        clock.now += 100_000

    group = {"short": count, "long": clock.spend(9_000_000)}
    series = take_turns([group], 12, 1e9, clock)
    assert series.rounds == 12
    assert series.samples["short"] == [100_000.0] * 12
    assert series.samples["long"] == [9_000_000.0] * 12
    assert len(calls) == 3 + 12 * 8 * 2  # three to see how long it takes, then stretches of 200 us
    assert series.median(CALIBRATION) == 30_000
    assert series.pairs("long", "short") == [90.0] * 12


def test_a_budget_ends_the_rounds_but_not_the_first_ten(clock: Clock) -> None:
    assert take_turns([{"x": clock.spend(2_000_000)}], 99, 0.0, clock).rounds == 10


def test_a_sample_is_the_least_of_its_stretches_and_a_group_takes_turns(clock: Clock) -> None:
    heard: list[str] = []

    def call(name: str) -> Any:
        def work() -> None:
            heard.append(name)
            clock.now += 300_000 + 1_000 * (len(heard) % 5)

        return work

    series = take_turns([{"a": call("a"), "b": call("b")}], 10, 1e9, clock)
    assert set(series.samples["a"]) | set(series.samples["b"]) == {300_000.0}
    last = "".join(heard[-16:])
    assert last == "baabbaabbaabbaab"


def test_a_machine_that_changes_its_speed_says_nothing(clock: Clock) -> None:
    steady = Series({CALIBRATION: [1.0]}, before=100.0, after=124.0)
    assert steady.steady
    assert not replace(steady, after=126.0).steady
    assert not replace(steady, after=79.0).steady


def series(**samples: float) -> Series:
    every = {name.replace("_", " "): [value] * 11 for name, value in samples.items()}
    return Series({CALIBRATION: [30_000.0] * 11, **every}, 30_000.0, 30_000.0)


PLAIN = series(attend=104_000, short_attend=4_000, scores=50_000, short_scores=3_000, append=1_000)
QUANTIZED = series(
    attend=56_000, short_attend=6_000, scores=30_000, short_scores=4_000, append=3_000
)


def test_sums_and_differences_go_round_by_round() -> None:
    assert PLAIN.sums("append", "attend") == [105_000.0] * 11
    assert PLAIN.sums("attend", less=("scores",)) == [54_000.0] * 11
    found = evidence([3_000.0, 1_000.0, 2_000.0])
    assert (found["samples"], found["low"], found["high"]) == ([3.0, 1.0, 2.0], 1.0, 3.0)


def test_the_economy_of_a_preset_by_hand() -> None:
    found = Economy.of(OWNER, "turbo", QUANTIZED, PLAIN)
    # 1024 tokens beyond the short page: 100 us with fp16 and 50 us without, 2 us of transform.
    assert (found.transform, found.saved, found.append) == (2_000, 48_000, 2_000)
    assert found.transform_cost == pytest.approx(2 / 50)
    assert found.break_even == pytest.approx(16 + 2_000 / (50_000 / 1024))
    assert found.payback == pytest.approx(2_000 * 1040 / 48_000)


def test_a_preset_that_saves_nothing_never_pays() -> None:
    slow = series(attend=120_000, short_attend=6_000, scores=1, short_scores=1, append=3_000)
    found = Economy.of(OWNER, "turbo", slow, PLAIN)
    assert found.transform_cost == found.break_even == found.payback == math.inf
    rule = rulebook().rule("performance.transform_cost")
    assert rule.excess(found.transform_cost) > 0
    equal = Economy.of(OWNER, "turbo", PLAIN, PLAIN)
    assert equal.transform_cost == math.inf


def test_predictions_are_the_formulas() -> None:
    found = predict(OWNER, "turbo", ROOFS)
    # 8 queries and 8 outputs of 128, two rounds of 128 signs and 128 x 7 additions each.
    transform_seconds = 16 * 2 * (128 + 128 * 7) / 1e11
    costs = kvassay.preset("turbo", layers=1, **asdict(OWNER.shape))
    page = PageLayout(costs.layer_specs[0]).size / costs.page_tokens
    saved = 2 * 2 * 128 * 2 - page
    assert found["break_even"] == pytest.approx(transform_seconds * 1e10 / saved)
    assert found["payback"] > 0
    assert predict(OWNER, "kivi", ROOFS)["break_even"] == 0


def test_a_step_stands_under_the_lower_roof() -> None:
    memory = Place(bytes=10**7, operations=10**6, seconds=0.004)
    assert memory.least_seconds(ROOFS) == pytest.approx(1e-3)
    busy = Place(bytes=10**4, operations=10**9, seconds=0.04)
    assert busy.least_seconds(ROOFS) == pytest.approx(1e-2)
    place = Place.of(OWNER, {"codes": 5, "scratch": 100, "sinks": 2}, 1e6)
    assert (place.bytes, place.operations) == (7, 4 * 8 * 128 * 1040)
    assert place.seconds == pytest.approx(1e-3)


def test_only_scope_full_runs_it_and_every_task_runs_alone() -> None:
    assert not in_scope(suite, "default")
    assert not in_scope(suite, "browser")
    assert in_scope(suite, "full")
    tasks = suite.tasks(Request((TARGET,), ("turbo",), depth="full"))
    assert all(task.alone for task in tasks)
    lengths = EFFORTS["full"].lengths
    assert len(tasks) == 1 + 3 * len(lengths) + 2
    judged = [t.arguments["tokens"] for t in tasks if t.arguments.get("judged")]
    assert judged == [max(lengths)]
    for task in tasks:
        task.load()


@pytest.mark.parametrize("depth", EFFORTS)
def test_every_length_leaves_the_same_residual(depth: str) -> None:
    effort = EFFORTS[depth]  # type: ignore[index]
    for preset in kvassay.presets.PRESETS:
        spec = effort.shape.spec(preset)
        rest = {
            n - spec.sinks - spec.layer_specs[0].sealed(n) * spec.page_tokens
            for n in effort.lengths
        }
        assert len(rest) == 1


ARGUMENTS: dict[str, Any] = {
    "backend": "native",
    "variant": "scalar",
    "presets": ["fp16", "turbo"],
    "tokens": 260,
    "shape": asdict(SMALL),
}


def by_check(records: list[Record], preset: str) -> dict[str, Record]:
    return {r.check.partition(".")[2]: r for r in records if r.preset == preset}


@pytest.fixture(scope="module")
def measured() -> list[Record]:
    """Steps as short as they get."""
    return steps.measure(**ARGUMENTS, rounds=10, seconds=0.0, judged=True)


def test_steps_give_every_figure_with_its_evidence(measured: list[Record]) -> None:
    records = measured
    parts = {*steps.PARTS, "roofline"}
    assert set(by_check(records, "fp16")) == parts
    turbo = by_check(records, "turbo")
    assert set(turbo) == parts | {"query_transform", "break_even", "payback", "transform_cost"}
    assert "ratios" not in by_check(records, "fp16")["attend"].detail
    for name in ("decode", "append", "attend"):
        detail = turbo[name].detail
        assert detail["against"] == "fp16"
        assert len(detail["ratios"]) == detail["rounds"] == 10
        assert detail["low"] <= turbo[name].value <= detail["high"]
        assert detail["build_id"]
    assert by_check(records, "fp16")["attend"].detail["against"] == CALIBRATION


def test_a_length_that_is_not_judged_has_no_cost_of_the_transform() -> None:
    found = Economy.of(OWNER, "turbo", QUANTIZED, PLAIN)
    checks = [
        [r.check for r in found.records(OWNER, "turbo", 1, {}, judged)] for judged in (False, True)
    ]
    assert [c for c in checks[1] if c not in checks[0]] == ["performance.transform_cost"]


def test_the_checksum_is_of_what_was_computed(measured: list[Record]) -> None:
    loaded = kvassay.load("reference")
    k, v, q = tokens_of(SMALL, 260)
    with filled(loaded, SMALL.spec("turbo"), k, v) as cache:
        expected = checksum(cache.attend(0, q[0]))
    found = {r.detail["output"] for r in measured if r.preset == "turbo"}
    assert found == {expected}
    assert {r.detail["output"] for r in measured if r.preset == "fp16"} != {expected}


def test_fresh_caches_and_their_bytes(held: list[Record]) -> None:
    records = fresh.measure(**ARGUMENTS, seconds=0.0)
    assert set(by_check(records, "turbo")) == {"prefill", "first_decode", "allocator"}
    assert all(r.comparisons == 3 for r in records)
    turbo, plain = by_check(held, "turbo"), by_check(held, "fp16")
    assert set(turbo) == {"payload_bytes", "scratch_bytes", "peak_bytes"}
    assert 0 < turbo["payload_bytes"].value < plain["payload_bytes"].value
    assert turbo["payload_bytes"].value == sum(
        turbo["payload_bytes"].detail["parts"][name] for name in holding.PAYLOAD
    )


def test_every_figure_has_method_build_and_output(
    measured: list[Record], held: list[Record]
) -> None:
    for record in [*measured, *held]:
        assert record.detail["method"], record.check
        assert record.detail["build_id"], record.check
        assert record.detail["output"] == record.detail["expected"] != "", record.check


def test_a_linear_memory_says_how_often_it_grew() -> None:
    pytest.importorskip("wasmtime")
    held = holding.measure(**{**ARGUMENTS, "backend": "wasm", "presets": ["turbo"]})
    found = by_check(held, "turbo")
    assert found["growth_events"].value >= 0
    assert found["peak_bytes"].value == found["peak_bytes"].detail["pages"] * 65536


def test_the_ceilings_are_the_machines() -> None:
    (record,) = ceilings.measure()
    assert (record.backend, record.stage) == ("", "math")
    assert record.detail["operations_per_second"] > record.detail["bytes_per_second"] > 0
    assert set(record.detail["reads_gb_per_second"]) == {c.name for c in caches() if c.level > 1}
    assert min(record.detail["reads_gb_per_second"].values(), default=1.0) > 0
    low, high = record.detail["spread"]
    assert 0 < low <= 1 <= high
    assert record.detail["frequency"]
    calibrate()


@pytest.fixture(scope="module")
def held() -> list[Record]:
    """Bytes of the same caches."""
    return holding.measure(**ARGUMENTS)


def test_tracked_figures_are_measured_and_of_their_kind(
    measured: list[Record], held: list[Record]
) -> None:
    pytest.importorskip("wasmtime")
    records = [*measured, *held, *instructions.measure("wasm", "simd128", ["turbo"], 260)]
    mine = [track for track in tracks().tracks if track.check.startswith("performance.")]
    assert {track.kind for track in mine} == {"exact", "ratio"}
    for track in mine:
        followed = [r for r in records if track.follows(r) and r.preset == "turbo"]
        assert len({r.subject for r in followed}) == len(followed) > 0
        for figure in map(track.read, followed):
            assert (min(figure) if track.kind == "ratio" else figure) > 0
