"""Holm's procedure on worked examples."""

from __future__ import annotations

import pytest

from kvassay.statistics import holm


def test_the_worked_example() -> None:
    """The smallest of four is multiplied by four, and none is below one before it."""
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06})


def test_a_single_test_is_itself_and_one_is_the_most() -> None:
    assert holm({"a": 0.2}) == {"a": 0.2}
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}
