"""Every case of docs/faults.md turns red for a backend that has the fault, and for no sound one."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path

import pytest
from planted.cases import FAULTY

from kvassay.judging.rules import evaluate, rulebook
from kvassay_suites.correctness.faults.case import CASES
from kvassay_suites.correctness.faults.measure import measure

DOCS = Path(__file__).parents[3] / "docs" / "faults.md"


def test_every_case_has_a_faulty_backend() -> None:
    assert sorted(FAULTY) == sorted(CASES)


@pytest.mark.parametrize("number", sorted(FAULTY))
def test_a_faulty_backend_is_rejected(number: int) -> None:
    if number == 25 and (sys.platform != "linux" or platform.machine() != "x86_64"):
        pytest.skip("how to set flush-to-zero is known for glibc on x86-64 alone")
    (record,) = measure(FAULTY[number], "scalar", number)
    outcome = evaluate(rulebook().rule("correctness.faults"), [record])
    assert outcome.state == "reject"
    assert record.detail["expected, and found"]


@pytest.mark.parametrize("number", sorted(CASES))
def test_the_same_backend_without_the_fault_is_not(number: int) -> None:
    (record,) = measure("planted.wrapped:Unbroken", "scalar", number)
    assert record.value == 0, record.detail
    assert record.comparisons > 5


def test_documented() -> None:
    rows = re.findall(r"^\| (\d+) \|", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [int(number) for number in rows] == sorted(CASES)
