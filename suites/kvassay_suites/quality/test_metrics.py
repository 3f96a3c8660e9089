"""The metrics on cases worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kvassay_suites.quality import metrics


def logs(*probabilities: float) -> metrics.Doubles:
    with np.errstate(divide="ignore"):
        logarithms: metrics.Doubles = np.log(np.array([probabilities]))
    return logarithms


def test_kl_of_equal_distributions_is_zero() -> None:
    p = logs(0.5, 0.25, 0.25, 0.0)
    assert metrics.kl_divergence(p, p)[0] == 0.0
    assert metrics.js_divergence(p, p)[0] == pytest.approx(0.0, abs=1e-15)


def test_kl_of_a_known_pair_is_in_nats_and_not_symmetric() -> None:
    p, q = logs(0.5, 0.5), logs(0.75, 0.25)
    assert metrics.kl_divergence(p, q)[0] == pytest.approx(0.5 * math.log(4 / 3))
    assert metrics.kl_divergence(q, p)[0] == pytest.approx(
        0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    )


def test_an_outcome_missing_from_p_counts_nothing_and_one_missing_from_q_is_infinite() -> None:
    p, q = logs(1.0, 0.0), logs(0.5, 0.5)
    assert metrics.kl_divergence(p, q)[0] == pytest.approx(math.log(2.0))
    assert metrics.kl_divergence(q, p)[0] == math.inf


def test_js_is_bounded_by_ln_2_and_symmetric() -> None:
    p, q = logs(1.0, 0.0, 0.0), logs(0.0, 0.5, 0.5)
    assert metrics.js_divergence(p, q)[0] == pytest.approx(math.log(2.0))
    r = logs(0.2, 0.3, 0.5)
    assert metrics.js_divergence(p, r)[0] == pytest.approx(metrics.js_divergence(r, p)[0])


def test_nan_is_never_cut_off() -> None:
    assert math.isnan(metrics.kl_divergence(logs(0.5, 0.5), np.array([[math.nan, 0.0]]))[0])


def test_top1_and_topk_compare_places_not_values() -> None:
    a = np.array([[5.0, 4.0, 3.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
    b = np.array([[50.0, -1.0, 40.0, 45.0], [3.0, 2.0, 1.0, 0.0]])
    assert metrics.same_top1(a, b).tolist() == [True, False]
    assert metrics.topk_overlap(a, b, 2).tolist() == [0.5, 0.0]
    assert metrics.topk_overlap(a, a, 3).tolist() == [1.0, 1.0]


def test_relative_rms_and_cosine() -> None:
    exact = np.array([[3.0, 4.0]])
    assert metrics.relative_rms(0.4 * exact, exact) == pytest.approx(0.6)
    assert metrics.cosine(0.4 * exact, exact)[0] == pytest.approx(1.0)
    assert metrics.cosine(np.array([[4.0, -3.0]]), exact)[0] == 0.0
    assert math.isnan(metrics.relative_rms(exact, np.zeros((1, 2))))
    assert math.isnan(metrics.cosine(exact, np.zeros((1, 2)))[0])


def test_spread_uses_order_statistics() -> None:
    values = np.arange(1.0, 102.0)
    assert metrics.spread(values) == {
        "mean": 51.0,
        "median": 51.0,
        "p90": 91.0,
        "p99": 100.0,
        "max": 101.0,
    }


def test_nothing_measured_is_nan_never_zero() -> None:
    nothing = np.empty(0)
    assert math.isnan(metrics.mean(nothing))
    assert math.isnan(metrics.median(nothing))
    assert math.isnan(metrics.relative_rms(nothing, nothing))
    assert all(math.isnan(value) for value in metrics.spread(nothing).values())


def test_relative_rise_weighs_items_by_their_tokens() -> None:
    reference = np.array([100.0, 1.0])
    assert metrics.relative_rise(reference, np.array([100.0, 2.0])) == pytest.approx(1 / 101)
    assert math.isnan(metrics.relative_rise(np.zeros(2), np.ones(2)))
