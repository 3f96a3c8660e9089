"""Intervals on cases worked out by hand, and how often they hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kvassay.statistics import mean_interval, ratio_interval, ratio_upper_bound


def test_a_constant_rise_has_no_width() -> None:
    reference = np.array([10.0, 20.0, 30.0, 40.0])
    assert ratio_upper_bound(reference, 1.03 * reference) == pytest.approx(0.03)
    assert ratio_interval(reference, 1.03 * reference) == pytest.approx((0.03, 0.03))
    assert mean_interval(np.full(5, 2.0)) == (2.0, 2.0)


@pytest.mark.parametrize("values", [[1.0], [1.0, math.nan, 2.0], [1.0, math.inf, 2.0]])
def test_one_item_and_what_is_not_finite_have_no_interval(values: list[float]) -> None:
    items = np.array(values)
    assert math.isnan(ratio_upper_bound(items, items))
    assert all(math.isnan(end) for end in mean_interval(items))


def test_pairs_stay_together() -> None:
    """Items differ a hundredfold, the pairs by 2 % exactly: any other pairing is far off."""
    reference = np.geomspace(1.0, 100.0, 30)
    low, high = ratio_interval(reference, 1.02 * reference)
    assert (low, high) == pytest.approx((0.02, 0.02))


def test_items_count_by_their_size() -> None:
    reference, found = np.array([1.0] * 15 + [9.0] * 15), np.array([2.0] * 15 + [9.0] * 15)
    low, high = ratio_interval(reference, found)
    assert low < 15 / 150 < high < 0.3


def test_the_upper_bound_covers_at_about_its_confidence() -> None:
    """Rises of 1 % on average with noise between items: the bound is below in about one of 20."""
    random = np.random.default_rng(5)
    missed = 0
    for _ in range(200):
        reference = random.uniform(50.0, 150.0, size=40)
        found = reference * (1.01 + 0.02 * random.standard_normal(40))
        missed += ratio_upper_bound(reference, found, resamples=500) < 0.01
    assert 3 <= missed <= 26
