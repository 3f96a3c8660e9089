"""The state machine finds planted faults of the life cycle, and tells the shortest way there."""

from __future__ import annotations

import pytest
from hypothesis import Phase

from kvassay_suites.correctness.lifecycle import measure as measuring
from kvassay_suites.correctness.lifecycle.measure import measure

FAULTS = {
    "RollbackKeepsOne": "draft",
    "AdoptsShifted": "adopt",
    "CancelledHalfWay": "cancelled",
    "ResetKeepsSinks": "reset",
    "IgnoresAdapter": "switch",
    "CutsOneLate": "truncate",
}


@pytest.fixture(autouse=True)
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is found is asked here, not how short it can be told."""
    monkeypatch.setattr(measuring, "PHASES", (Phase.generate,))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    (record,) = measure(f"planted.sharing:{fault}", "scalar", 600, 30)
    assert record.value == 1
    assert FAULTS[fault] in str(record.detail["found"])


def test_a_sound_wrapper_passes() -> None:
    (record,) = measure("planted.sharing:Sharing", "scalar", 30, 20)
    assert record.value == 0, record.detail
    assert record.comparisons > 300
