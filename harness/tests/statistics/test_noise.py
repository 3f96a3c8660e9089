"""The gate's statistics under the noise of a busy machine, as it was recorded.

Nothing is timed here: recorded pairs are drawn again, in runs of five so that neighbours stay
together, with a pinned generator. The rates that rules.toml states are what is tested.
"""

from __future__ import annotations

import datetime
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from scipy.stats import binom
from synthetic import make

from kvassay.judging.compare import Change, follow
from kvassay.judging.tracks import Track, Tracks, tracks
from kvassay.records import Record
from kvassay.statistics.noise import alarms, chance, interval, ratio, resolves

RECORDED: Final[dict[str, list[list[float]]]] = json.loads(
    (Path(__file__).parent / "data" / "noise.json").read_text(encoding="utf-8")
)["series"]
SHIPPED = tracks()
TRACK = Track("performance.attend", "ratios", "ratio", 0.04, "r", datetime.date(2026, 11, 30))
BOOK = Tracks((TRACK,), SHIPPED.false_alarms, SHIPPED.slowdown, SHIPPED.power)
RUNS = 50
#: Pairs after which even this machine shows 10 %.
ENOUGH = 1000
BLOCK = 5


def draw(source: np.random.Generator, series: Sequence[float], pairs: int) -> list[float]:
    """Pairs of a recorded series again, five neighbours at a time."""
    starts = source.integers(0, len(series) - BLOCK + 1, -(-pairs // BLOCK))
    return [series[start + n] for start in starts for n in range(BLOCK)][:pairs]


def records(found: dict[str, list[float]]) -> list[Record]:
    return [
        make("performance.attend", statistics.median(ratios), subject=name, n=len(ratios),
             detail={"ratios": ratios})
        for name, ratios in found.items()
    ]  # fmt: skip


def run_pair(
    source: np.random.Generator, pairs: int, planted: float = 1.0, processes: bool = False
) -> list[Change]:
    """Two runs of one build: of one process, or of two; the second slower by `planted`."""
    before, after = {}, {}
    for name, series in RECORDED.items():
        first, second = source.choice(len(series), 2, replace=False)
        before[name] = draw(source, series[first], pairs)
        again = draw(source, series[second if processes else first], pairs)
        after[name] = [planted * value for value in again]
    return follow(records(before), records(after), BOOK)


def most(rate: float) -> int:
    """Alarms of so many runs that a true rate exceeds once in a thousand times."""
    return int(binom.ppf(0.999, RUNS, rate))


def test_the_recording_is_of_a_busy_machine_and_long_enough() -> None:
    assert len(RECORDED) == 4
    for series in RECORDED.values():
        assert [len(one) for one in series] == [31, 31, 30]
        assert 0.05 < statistics.pstdev(series[0]) / statistics.mean(series[0]) < 0.5


@pytest.mark.parametrize("pairs", [31, ENOUGH])
def test_a_run_against_itself_raises_no_more_alarms_than_stated(pairs: int) -> None:
    source = np.random.default_rng(1)
    runs = [run_pair(source, pairs, processes=True) for _ in range(RUNS)]
    alarmed = sum(any(change.state == "regressed" for change in run) for run in runs)
    assert alarmed <= most(BOOK.false_alarms)


def test_a_slowdown_of_ten_percent_is_found_as_often_as_stated() -> None:
    source = np.random.default_rng(2)
    runs = [run_pair(source, ENOUGH, planted=1 + BOOK.slowdown) for _ in range(RUNS // 2)]
    found = [change.state == "regressed" for run in runs for change in run]
    assert statistics.mean(found) >= BOOK.power


def test_noise_that_hides_ten_percent_is_called_so_and_no_pass() -> None:
    source = np.random.default_rng(3)
    changes = [change for _ in range(8) for change in run_pair(source, 31)]
    hidden = [change for change in changes if change.state == "missing"]
    assert len(hidden) > len(changes) / 2
    assert {change.state for change in changes} <= {"missing", "unchanged"}
    assert all(change.comparisons == 0 for change in hidden)
    assert all("too noisy to find 10%" in change.note for change in hidden)


def test_enough_pairs_say_no_change() -> None:
    source = np.random.default_rng(4)
    changes = [change for _ in range(4) for change in run_pair(source, 4 * ENOUGH)]
    states = [change.state for change in changes]
    # A recorded median may lie in a gap between two of its 31 values, which no drawing narrows.
    assert set(states) <= {"unchanged", "missing"}
    assert states.count("unchanged") > len(states) / 2


def test_many_figures_share_one_rate_of_false_alarms() -> None:
    assert alarms([], 0.01) == []
    assert alarms([0.005, 0.9, 0.9], 0.01) == [False, False, False]
    assert alarms([0.003, 0.9, 0.9], 0.01) == [True, False, False]


def test_the_chance_is_one_sided_and_knows_its_tolerance() -> None:
    base = [1 + 0.001 * n for n in range(20)]
    slower = [1.1 * value for value in base]
    assert chance(slower, base, 0.04) < 1e-6
    assert chance(slower, base, 0.2) > 0.99
    assert chance(base, slower, 0.0) > 0.99


def test_what_a_series_resolves_is_the_power_of_a_test_by_hand() -> None:
    source = np.random.default_rng(5)

    def series(scatter: float, pairs: int) -> list[float]:
        return list(np.exp(scatter * source.standard_normal(pairs)))

    # Needed: (z(.99) + z(.95)) sqrt(2) 1.2533 scatter / sqrt(pairs) <= log(1.1 / 1.04).
    # At 100 pairs that is a scatter of 8.0 %.
    def resolved(scatter: float) -> bool:
        a, b = series(scatter, 100), series(scatter, 100)
        return resolves(a, b, tolerance=0.04, slowdown=0.1, power=0.95, rate=0.01)

    assert all(resolved(0.05) for _ in range(20))
    assert not any(resolved(0.13) for _ in range(20))
    assert resolves([1.0] * 12, [1.0] * 12, 0.04, 0.1, 0.95, 0.01)


def test_ratios_go_pair_by_pair() -> None:
    assert ratio([2.0, 8.0, 3.0], [1.0, 2.0, 1.0]).median == 3.0
    assert interval([3.0, 1.0, 2.0]).low == 1.0
