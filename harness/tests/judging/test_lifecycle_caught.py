"""The state machine finds planted faults of the life cycle, and tells the shortest way there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import Phase

from kvassay_suites.correctness.lifecycle import EFFORTS
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


def test_pages_that_a_truncation_freed_are_found_in_a_quick_look() -> None:
    sequences, steps = EFFORTS["quick"]
    (record,) = measure("planted.state:StalePages", "scalar", sequences, steps)
    assert record.value == 1
    assert "attend of layer 0" in str(record.detail["found"])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    (record,) = measure(f"planted.sharing:{fault}", "scalar", 600, 30)
    assert record.value == 1
    assert FAULTS[fault] in str(record.detail["found"])


def test_a_sound_wrapper_passes() -> None:
    (record,) = measure("planted.sharing:Sharing", "scalar", 30, 20)
    assert record.value == 0, record.detail
    assert record.comparisons > 300


#: Hypothesis makes its folder once a process, so each look takes one.
LOOK = """
from kvassay_suites.correctness.lifecycle import measure
{}
measure.measure("reference", "scalar", 3, 10)
"""


@pytest.mark.parametrize("planted", ["", "measure.set_hypothesis_home_dir = lambda folder: None"])
def test_nothing_is_left_where_one_works(planted: str, tmp_path: Path) -> None:
    """Hypothesis makes a folder in the one that it runs in, unless it is told of another."""
    subprocess.run([sys.executable, "-c", LOOK.format(planted)], cwd=tmp_path, check=True)
    assert [path.name for path in tmp_path.iterdir()] == [".hypothesis"] * bool(planted)
