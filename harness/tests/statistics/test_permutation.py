"""The permutation test: exact cases, and its size and power on simulated effects.

250 pinned simulations: a share of .05 has a standard error of .014, one of .8 of .025. Bounds
are three of them wide.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from kvassay.statistics import detectable, holm, paired_p_value, power, required_items

ITEMS, RUNS, RESAMPLES = 30, 250, 299


def rejected(effect: float, seed: int, skewed: bool = False) -> float:
    """The share of simulated families whose harm is found at 5 %; deviation 1."""
    random = np.random.default_rng(seed)
    found = 0
    for _ in range(RUNS):
        noise = random.standard_normal(ITEMS)
        if skewed:  # mean 0, deviation 1, heavy on the side of harm
            noise = random.exponential(size=ITEMS) - 1.0
        found += paired_p_value(noise + effect, RESAMPLES) < 0.05
    return found / RUNS


def test_few_items_are_enumerated() -> None:
    assert paired_p_value(np.array([1.0, 1.0, 1.0])) == pytest.approx(1 / 8)
    assert paired_p_value(np.array([1.0, 1.0, -1.0])) == pytest.approx(4 / 8)


def test_no_difference_is_no_evidence_and_no_item_no_value() -> None:
    assert paired_p_value(np.zeros(30)) == 1.0
    assert math.isnan(paired_p_value(np.empty(0)))


def test_without_an_effect_it_rejects_at_its_level() -> None:
    assert 0.01 <= rejected(0.0, seed=1) <= 0.092
    assert rejected(0.0, seed=2, skewed=True) <= 0.092


def test_a_known_effect_is_found_with_the_stated_power() -> None:
    effect = detectable(ITEMS, deviation=1.0, wanted=0.8)
    assert 0.72 <= rejected(effect, seed=3) <= 0.88
    assert abs(rejected(0.25, seed=4) - power(ITEMS, 0.25, 1.0)) < 0.1


def test_a_gain_is_not_harm() -> None:
    random = np.random.default_rng(5)
    assert paired_p_value(random.standard_normal(ITEMS) - 1.0) > 0.99


def test_eight_families_without_harm_are_rejected_in_one_of_twenty_runs() -> None:
    random = np.random.default_rng(6)
    runs, fine = 60, 999  # a level of 5 % / 8 needs p-values below a thousandth apart
    alarms = planted = 0
    effect = detectable(ITEMS, deviation=1.0, level=0.05 / 8)
    for _ in range(runs):
        p = {str(k): paired_p_value(random.standard_normal(ITEMS), fine) for k in range(8)}
        alarms += min(holm(p).values()) < 0.05
        p["0"] = paired_p_value(random.standard_normal(ITEMS) + effect, fine)
        planted += holm(p)["0"] < 0.05
    assert alarms / runs <= 0.05 + 3 * 0.028
    assert planted / runs >= 0.8 - 3 * 0.052


def test_sample_sizes_and_power_agree() -> None:
    needed = required_items(effect=0.5, deviation=1.0)
    assert power(needed, 0.5, 1.0) >= 0.8 > power(needed - 1, 0.5, 1.0)
    assert needed == 27  # one-sided paired t-test, standard tables
    assert detectable(30, 2.0) == pytest.approx(2 * 0.4649, abs=1e-3)
    with pytest.raises(ValueError, match="too many items"):
        required_items(effect=1e-9, deviation=1.0)
    with pytest.raises(ValueError, match="need two"):
        power(1, 0.1, 1.0)
